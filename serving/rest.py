"""TensorFlow Serving's REST API, and beside it `:stream` (server-sent events), `/health`, `/metrics` and the page."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from serving import json_tensors
from serving.failures import InvalidRequest, RequestError, TooLarge
from serving.grpc_services import metadata_of, status_of
from serving.models import LoadedModel
from serving.service import DEFAULT_SIGNATURE, Service, as_request_error

PAGE = Path(__file__).with_name("page.html")

STREAM_DEFAULTS = {
    "max_new_tokens": 100,
    "temperature": 0.8,
    "top_k": 0,
    "top_p": 0.95,
    "repetition_penalty": 1.0,
    "seed": 0,
}
"""What `:stream` takes for settings that a request leaves out; `:predict` wants all, as TensorFlow Serving does."""


class _Stream(StreamingResponse):
    media_type = "text/event-stream"


def rest_app(service: Service) -> Starlette:
    """The application."""
    handlers = _Handlers(service)
    routes = [Route("/", handlers.page), Route("/health", handlers.health), Route("/metrics", handlers.metrics)]
    for prefix in ("/v1/models/{name}", "/v1/models/{name}/versions/{version:int}"):
        routes += [
            Route(f"{prefix}:predict", handlers.counted(handlers.predict), methods=["POST"]),
            Route(f"{prefix}:stream", handlers.counted(handlers.stream), methods=["POST"]),
            Route(f"{prefix}/metadata", handlers.counted(handlers.metadata)),
            Route(prefix, handlers.counted(handlers.status)),
        ]
    return Starlette(routes=routes)


class _Handlers:
    def __init__(self, service: Service):
        self._service = service

    def counted(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Answers errors as TensorFlow Serving does, and counts."""

        async def answer(request: Request) -> Response:
            started = time.monotonic()
            request.state.signature = handler.__name__
            try:
                response = await handler(request)
            except ClientDisconnect:
                response = Response(status_code=499)
            except RequestError as error:
                response = JSONResponse({"error": str(error)}, status_code=error.http_status)
            metrics = self._service.metrics
            metrics.requests.labels("rest", request.state.signature, response.status_code).inc()
            if not isinstance(response, _Stream):
                metrics.latency.labels(request.state.signature).observe(time.monotonic() - started)
            return response

        return answer

    async def page(self, request: Request) -> Response:
        return FileResponse(PAGE, media_type="text/html", headers={"X-Model-Name": self._service.settings.model_name})

    async def health(self, request: Request) -> Response:
        try:
            version = self._service.model(self._service.settings.model_name, None).version
        except RequestError as error:
            return JSONResponse({"error": str(error)}, status_code=503)
        return JSONResponse({"model": self._service.settings.model_name, "version": version})

    async def metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def status(self, request: Request) -> Response:
        return _proto(status_of(self._service, *_asked(request)))

    async def metadata(self, request: Request) -> Response:
        return _proto(metadata_of(self._service.model(*_asked(request))))

    async def predict(self, request: Request) -> Response:
        service, deadline = self._service, self._service.deadline()
        body = json_tensors.parse(await self._body(request))
        model = service.model(*_asked(request))
        signature = body.get("signature_name", DEFAULT_SIGNATURE)
        if not isinstance(signature, str):
            raise InvalidRequest("signature_name must be a string")
        specs = model.inputs_of(signature)
        request.state.signature = signature
        inputs, by_rows = await run_in_threadpool(json_tensors.inputs_of, body, specs)
        future = service.submit(model, signature, inputs, deadline)
        await asyncio.wait([asyncio.wrap_future(future)], timeout=max(0.0, deadline - time.monotonic()))
        outputs = service.wait(future, signature, deadline)
        return JSONResponse(await run_in_threadpool(json_tensors.answer, outputs, by_rows))

    async def stream(self, request: Request) -> Response:
        body = json_tensors.parse(await self._body(request))
        model = self._service.model(*_asked(request))
        specs = model.inputs_of("prefill")
        row = {**STREAM_DEFAULTS, **body}
        inputs, _ = json_tensors.inputs_of({"instances": [row]}, specs)
        events = self._service.stream(model, inputs)
        first = await run_in_threadpool(next, events)  # what is wrong with the request still gets its status
        return _Stream(self._events(model, first, events), headers={"Cache-Control": "no-store"})

    async def _events(self, model: LoadedModel, first: dict[str, Any], events: Any) -> AsyncIterator[str]:
        with self._service.metrics.streams.track_inprogress():
            event: dict[str, Any] | None = {**first, "version": model.version}
            while event is not None:
                yield f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
                try:
                    event = await run_in_threadpool(next, events, None)
                except Exception as error:  # noqa: BLE001 - the status is sent: the client learns of it in the stream
                    yield f"event: error\ndata: {json.dumps({'error': str(as_request_error(error))})}\n\n"
                    return

    async def _body(self, request: Request) -> bytes:
        most = self._service.settings.limits.max_request_bytes
        received = bytearray()
        async for chunk in request.stream():
            received += chunk
            if len(received) > most:
                raise TooLarge(f"the request is larger than {most} bytes")
        return bytes(received)


def _asked(request: Request) -> tuple[str, int | None]:
    return request.path_params["name"], request.path_params.get("version")


def _proto(message: Any) -> Response:
    return Response(
        json_format.MessageToJson(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True),
        media_type="application/json",
    )
