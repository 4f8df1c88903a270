"""The message that a `--batching_parameters_file` of TensorFlow Serving holds.

The stubs on PyPI leave this message out, so its descriptor is built here: names, numbers and types of the fields as in
`tensorflow_serving/servables/tensorflow/session_bundle_config.proto`.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

_FULL_NAME = "tensorflow.serving.BatchingParameters"
_INT64 = ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads")


def batching_parameters() -> Any:
    """An empty message."""
    pool = descriptor_pool.Default()
    try:
        found = pool.FindMessageTypeByName(_FULL_NAME)
    except KeyError:
        pool.Add(_file())
        found = pool.FindMessageTypeByName(_FULL_NAME)
    return message_factory.GetMessageClass(found)()


def _file() -> descriptor_pb2.FileDescriptorProto:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="tokenmill/batching_parameters.proto",
        package="tensorflow.serving",
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    message = file.message_type.add(name="BatchingParameters")
    for number, name in enumerate(_INT64, start=1):
        _add(message, name, number, kinds.TYPE_MESSAGE, type_name=".google.protobuf.Int64Value")
    _add(message, "thread_pool_name", 5, kinds.TYPE_MESSAGE, type_name=".google.protobuf.StringValue")
    _add(message, "allowed_batch_sizes", 6, kinds.TYPE_INT64, label=kinds.LABEL_REPEATED)
    _add(message, "pad_variable_length_inputs", 7, kinds.TYPE_BOOL)
    return file


def _add(message: Any, name: str, number: int, kind: int, label: int = 1, **more: str) -> None:
    message.field.add(name=name, number=number, type=kind, label=label, **more)
