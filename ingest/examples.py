"""tf.Example without TensorFlow: its import would take longer than the whole of a small ingest.

The message is declared here again, in a descriptor pool of its own, so that it cannot meet
TensorFlow's in a process that has both. Serialization is deterministic: protobuf otherwise promises no order of a map.
"""

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from foundation.documents import DOC_ID, SOURCE, TEXT
from ingest.documents import Document


class NotAnExampleError(ValueError):
    """Bytes that do not parse as tf.Example."""


def encode(document: Document) -> bytes:
    """A document as a serialized tf.Example; equal documents give equal bytes."""
    example = _example_class()()
    features = example.features.feature
    features[DOC_ID].bytes_list.value.append(document.doc_id.encode())
    features[TEXT].bytes_list.value.append(document.text)
    features[SOURCE].bytes_list.value.append(document.source.encode())
    return example.SerializeToString(deterministic=True)


def decode(serialized: bytes) -> dict[str, list[Any]]:
    """Values of every feature of a tf.Example: lists of bytes, int or float, by feature name.

    Raises:
      NotAnExampleError: the bytes do not parse.
    """
    example = _example_class()()
    try:
        example.ParseFromString(serialized)
    except message.DecodeError as error:
        raise NotAnExampleError(str(error)) from error
    values: dict[str, list[Any]] = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        values[name] = list(getattr(feature, kind).value) if kind else []
    return values


@functools.cache
def _example_class() -> Any:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")
    for name, kind in (
        ("BytesList", field.TYPE_BYTES),
        ("FloatList", field.TYPE_FLOAT),
        ("Int64List", field.TYPE_INT64),
    ):
        file.message_type.add(name=name).field.add(name="value", number=1, type=kind, label=field.LABEL_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, type_name) in enumerate(
        (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")), start=1
    ):
        _add_message_field(feature, name, number, type_name).oneof_index = 0
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    _add_message_field(entry, "value", 2, "Feature")
    _add_message_field(features, "feature", 1, "Features.FeatureEntry").label = field.LABEL_REPEATED
    _add_message_field(file.message_type.add(name="Example"), "features", 1, "Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def _add_message_field(
    owner: descriptor_pb2.DescriptorProto, name: str, number: int, type_name: str
) -> descriptor_pb2.FieldDescriptorProto:
    field = descriptor_pb2.FieldDescriptorProto
    return owner.field.add(
        name=name,
        number=number,
        type=field.TYPE_MESSAGE,
        type_name=f".tensorflow.{type_name}",
        label=field.LABEL_OPTIONAL,
    )
