"""`tokenmill serve`: a server for development over the newest version in the registry."""

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import ConfigError
from runners.cli.options import Overrides


def serve(
    config: Annotated[
        str | None, typer.Option("--config", "-c", metavar="FILE", help="Serve what this run pushes.")
    ] = None,
    overrides: Overrides = None,
    registry: Annotated[
        Path | None, typer.Option("--registry", metavar="FOLDER", help="Or: this registry, with --model-name.")
    ] = None,
    model_name: Annotated[str | None, typer.Option("--model-name", help="Model in that registry.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; other machines reach 0.0.0.0.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of REST and the page; 0: any.")] = 8501,
    grpc_port: Annotated[int, typer.Option(min=0, max=65535, help="Of gRPC; 0: any.")] = 8500,
    poll_s: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks for a newer version.")] = 2.0,
    batching_parameters_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="As TensorFlow Serving takes it.")
    ] = None,
    max_text_bytes: Annotated[int, typer.Option(min=1, help="Of one text; longer ones are refused.")] = 262_144,
    timeout_s: Annotated[float, typer.Option(min=0.01, help="From a request's arrival to its answer.")] = 60.0,
    drain_s: Annotated[float, typer.Option(min=0, help="For requests under way, after SIGTERM.")] = 30.0,
) -> None:
    """Serve the newest model: TensorFlow Serving's REST and gRPC, streaming, and a page. For development."""
    if (config is None) == (registry is None or model_name is None):
        raise ConfigError("give either --config FILE or --registry FOLDER with --model-name NAME")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("tokenmill.serving").setLevel(logging.INFO)
    from serving.server import serve as run
    from serving.settings import Batching, Limits, Settings, read_batching

    if config is not None:
        from pipeline.config import load_config

        loaded = load_config(config, overrides)
        registry, model_name = loaded.registry_folder, loaded.name
    assert registry is not None and model_name is not None
    settings = Settings(
        registry=registry,
        model_name=model_name,
        host=host,
        rest_port=port,
        grpc_port=grpc_port,
        poll_s=poll_s,
        batching=read_batching(batching_parameters_file) if batching_parameters_file else Batching(),
        limits=Limits(max_text_bytes=max_text_bytes, timeout_s=timeout_s, drain_s=drain_s),
    )

    def ready(version: int, rest_port: int, grpc_port: int) -> None:
        typer.echo(f"serving {model_name} version {version}: http://{host}:{rest_port}/ and gRPC {host}:{grpc_port}")

    run(settings, ready)
