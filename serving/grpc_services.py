"""TensorFlow Serving's gRPC services over a `Service`."""

import time
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.failures import InvalidRequest, RequestError, TooLarge
from serving.models import LoadedModel
from serving.service import DEFAULT_SIGNATURE, Service


def status_of(service: Service, name: str, version: int | None) -> Any:
    """GetModelStatusResponse of a model.

    Raises:
      NotFound: as `Models.statuses`.
    """
    response = get_model_status_pb2.GetModelStatusResponse()
    for status in service.models.statuses(name, version):
        entry = response.model_version_status.add(version=status.version)
        entry.state = get_model_status_pb2.ModelVersionStatus.State.Value(status.state)
        entry.status.error_code = 2 if status.error else 0  # UNKNOWN, OK
        entry.status.error_message = status.error
    return response


def metadata_of(model: LoadedModel) -> Any:
    """GetModelMetadataResponse with the model's signatures."""
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for name in model.signature_names:
        signature = signatures.signature_def[name]
        signature.method_name = "tensorflow/serving/predict"
        for target, specs in (
            (signature.inputs, model.inputs_of(name)),
            (signature.outputs, model.outputs_of(name)),
        ):
            for key, spec in specs.items():
                target[key].name = key
                target[key].dtype = spec.dtype.as_datatype_enum
                target[key].tensor_shape.CopyFrom(spec.shape.as_proto())
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.metadata["signature_def"].Pack(signatures)
    return response


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict and GetModelMetadata; the others answer UNIMPLEMENTED."""

    def __init__(self, service: Service):
        self._service = service

    def Predict(self, request: Any, context: Any) -> Any:
        """One call of a signature."""
        return _answer(
            self._service, context, request.model_spec.signature_name or DEFAULT_SIGNATURE, request, self._predict
        )

    def GetModelMetadata(self, request: Any, context: Any) -> Any:
        """The signatures."""
        return _answer(self._service, context, "metadata", request, self._metadata)

    def _predict(self, request: Any, deadline: float) -> Any:
        import tensorflow as tf

        spec = request.model_spec
        model = self._service.model(spec.name, _version(spec))
        signature = spec.signature_name or DEFAULT_SIGNATURE
        specs = model.inputs_of(signature)
        most = self._service.settings.limits.max_request_bytes
        inputs = {}
        for name, tensor in request.inputs.items():
            if name in specs and tensor.dtype != specs[name].dtype.as_datatype_enum:
                raise InvalidRequest(f"{name}: must be {specs[name].dtype.name}")
            # A tensor of one value can claim any shape, and is then spread to it.
            size = int(np.prod([float(dim.size) for dim in tensor.tensor_shape.dim]))
            if not 0 <= size <= most:
                raise TooLarge(f"{name}: its shape has {size} values; at most {most} are allowed")
            try:
                inputs[name] = tf.make_ndarray(tensor)
            except (TypeError, ValueError) as error:
                raise InvalidRequest(f"{name}: not a tensor: {error}") from None
        outputs = self._service.predict(model, signature, inputs, deadline)
        response = predict_pb2.PredictResponse()
        response.model_spec.name = spec.name
        response.model_spec.version.value = model.version
        response.model_spec.signature_name = signature
        wanted = set(request.output_filter) or outputs.keys()
        unknown = sorted(wanted - outputs.keys())
        if unknown:
            raise InvalidRequest(f"output_filter: not known: {', '.join(unknown)}")
        for name in wanted:
            response.outputs[name].CopyFrom(tf.make_tensor_proto(outputs[name]))
        return response

    def _metadata(self, request: Any, deadline: float) -> Any:
        if list(request.metadata_field) != ["signature_def"]:
            raise InvalidRequest("metadata_field must be signature_def")
        model = self._service.model(request.model_spec.name, _version(request.model_spec))
        response = metadata_of(model)
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = model.version
        return response


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus."""

    def __init__(self, service: Service):
        self._service = service

    def GetModelStatus(self, request: Any, context: Any) -> Any:
        """The versions and their states."""
        return _answer(
            self._service,
            context,
            "status",
            request,
            lambda request, _: status_of(self._service, request.model_spec.name, _version(request.model_spec)),
        )


def _version(spec: Any) -> int | None:
    return int(spec.version.value) if spec.HasField("version") else None


def _answer(service: Service, context: Any, signature: str, request: Any, handle: Callable[[Any, float], Any]) -> Any:
    started, deadline = time.monotonic(), service.deadline()
    remaining = context.time_remaining()
    if remaining is not None:
        deadline = min(deadline, started + remaining)
    failure: RequestError | None = None
    try:
        response = handle(request, deadline)
    except RequestError as error:
        failure = error
    code = failure.code if failure else grpc.StatusCode.OK
    known = failure is None or failure.code is not grpc.StatusCode.NOT_FOUND
    service.metrics.requests.labels("grpc", signature if known else "unknown", code.name).inc()
    service.metrics.latency.labels(signature if known else "unknown").observe(time.monotonic() - started)
    if failure:
        context.abort(failure.code, str(failure))
    return response
