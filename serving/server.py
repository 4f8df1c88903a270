"""Starts and ends the server: REST and gRPC beside each other over one `Service`."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import uvicorn
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from foundation.errors import HostError, ModelError
from serving.grpc_services import ModelService, PredictionService
from serving.rest import rest_app
from serving.service import Service
from serving.settings import Settings

_GRPC_THREADS = 128
"""Each waits for one answer; more calls at once than this and the queue are refused."""


class _Http(uvicorn.Server):
    """Signals are ours: SIGTERM drains and ends with exit code 0."""

    def capture_signals(self) -> Any:
        """Captures none."""
        return contextlib.nullcontext()


def serve(settings: Settings, on_ready: Callable[[int, int, int], None]) -> None:
    """Serves until SIGTERM or SIGINT, then drains: refuses what is new, ends what is under way.

    Args:
      on_ready: gets the version and the ports of REST and gRPC.

    Raises:
      ModelError: the registry has no sound version.
      HostError: a port cannot be had.
    """
    service = Service(settings)
    try:
        if not service.models.refresh():
            reasons = [
                f"version {status.version}: {status.error}" for status in service.models.statuses(settings.model_name)
            ]
            raise ModelError(
                f"{settings.registry / settings.model_name}: no version can be served"
                f"{' (' + '; '.join(reasons) + ')' if reasons else ''}; push a model: tokenmill run --config FILE"
            )
        asyncio.run(_serve(service, on_ready))
    finally:
        service.close()


async def _serve(service: Service, on_ready: Callable[[int, int, int], None]) -> None:
    settings = service.settings
    grpc_server, grpc_port = _grpc_server(service)
    config = uvicorn.Config(
        rest_app(service),
        host=settings.host,
        port=settings.rest_port,
        log_level="warning",
        timeout_graceful_shutdown=int(settings.limits.drain_s),
        lifespan="off",
    )
    try:
        socket = config.bind_socket()
    except SystemExit as error:  # uvicorn's way to say that the port is taken
        raise HostError(f"port {settings.rest_port} of {settings.host} cannot be had; give another: --port") from error
    http = _Http(config)
    stopped = threading.Event()

    def stop() -> None:
        service.draining = True
        if stopped.is_set():
            http.force_exit = True  # a second signal does not wait
        stopped.set()
        http.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    socket.listen(config.backlog)  # whoever reads that we are ready may connect at once
    grpc_server.start()
    version = service.models.get(settings.model_name, None).version
    service.models.watch(settings.poll_s)
    on_ready(version, socket.getsockname()[1], grpc_port)
    await http.serve(sockets=[socket])
    await asyncio.to_thread(grpc_server.stop(settings.limits.drain_s).wait)


def _grpc_server(service: Service) -> tuple[grpc.Server, int]:
    settings = service.settings
    server = grpc.server(
        ThreadPoolExecutor(_GRPC_THREADS, thread_name_prefix="grpc"),
        options=[
            ("grpc.max_receive_message_length", settings.limits.max_request_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(PredictionService(service), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(service), server)
    try:
        port = server.add_insecure_port(f"{settings.host}:{settings.grpc_port}")
    except RuntimeError as error:
        raise HostError(
            f"port {settings.grpc_port} of {settings.host} cannot be had; give another: --grpc-port"
        ) from error
    return server, port
