"""`tokenmill generate`: asks a pushed model."""

import os
from pathlib import Path
from typing import Annotated

import typer

from foundation.errors import ConfigError, ModelError
from runners.cli.options import Overrides
from runners.cli.quiet import quiet_stderr

_LARGEST = 2**31 - 1
"""What the model's int32 inputs take."""


def generate(
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="Text to go on from.")],
    config: Annotated[
        str | None, typer.Option("--config", "-c", metavar="FILE", help="Take the newest version that this run pushed.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="FOLDER", help="Take this SavedModel.")] = None,
    overrides: Overrides = None,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, max=_LARGEST, help="Tokens at most; the model's context, less one, is the limit.")
    ] = 100,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token each time.")] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, max=_LARGEST, help="Choose among the k likeliest tokens; 0: all.")] = 0,
    top_p: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Choose among the likeliest tokens that reach p together; 1: all.")
    ] = 0.95,
    seed: Annotated[int, typer.Option(min=-_LARGEST, max=_LARGEST, help="The same seed gives the same text.")] = 0,
) -> None:
    """Continue a prompt with the newest model in the registry."""
    if (config is None) == (model is None):
        raise ConfigError("give either --config FILE or --model FOLDER")
    folder = Path(model) if model else _newest(str(config), overrides)
    if not (folder / "saved_model.pb").exists():
        raise ModelError(f"{folder}: holds no SavedModel; give the folder that has saved_model.pb")
    text, dropped = _ask(folder, prompt, max_new_tokens, temperature, top_k, top_p, seed)
    if dropped:
        typer.echo(f"note: the first {dropped} tokens of the prompt did not fit and were left out", err=True)
    typer.echo(typer.style(prompt, bold=True) + text)


def _newest(config: str, overrides: list[str] | None) -> Path:
    from components.registry_pusher import registry
    from pipeline.config import load_config

    loaded = load_config(config, overrides)
    version = registry.newest_version(loaded.registry_folder, loaded.name)
    if version is None:
        raise ModelError(
            f"{loaded.registry_folder / loaded.name}: no model was pushed yet; run: tokenmill run --config {config}. "
            "If the last run's model was not blessed, give its folder, which that run has printed: --model FOLDER"
        )
    return loaded.registry_folder / loaded.name / str(version)


def _ask(
    folder: Path, prompt: str, max_new_tokens: int, temperature: float, top_k: int, top_p: float, seed: int
) -> tuple[str, int]:
    """The continuation, and how many tokens of the prompt did not fit."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with quiet_stderr():
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 - registers the tokenizer's op

        try:
            generate = tf.saved_model.load(str(folder)).signatures["serving_default"]
        except (OSError, KeyError, ValueError, tf.errors.OpError) as error:
            raise ModelError(f"{folder}: no model of ours, or a damaged one ({error}); take another version") from error
    answer = generate(
        prompt=tf.constant([prompt.encode("utf-8", "surrogateescape")]),
        max_new_tokens=tf.constant([max_new_tokens], tf.int32),
        temperature=tf.constant([temperature], tf.float32),
        top_k=tf.constant([top_k], tf.int32),
        top_p=tf.constant([top_p], tf.float32),
        seed=tf.constant([seed], tf.int32),
    )
    return answer["text"].numpy()[0].decode("utf-8", "replace"), int(answer["prompt_tokens_dropped"][0])
