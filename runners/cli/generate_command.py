"""`tokenmill generate`: asks a pushed model, and shows its answer as it comes."""

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.errors import ConfigError, ModelError
from foundation.export_files import check_files
from runners.cli.options import Overrides
from runners.cli.quiet import quiet_stderr

if TYPE_CHECKING:
    import tensorflow as tf

_LARGEST = 2**31 - 1
"""What the model's int32 inputs take."""

_STEPS_AT_ONCE = 4
"""Tokens between two looks at the text: a call costs about as much as a token of a small model."""


def generate(
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="Text to go on from.")],
    config: Annotated[
        str | None, typer.Option("--config", "-c", metavar="FILE", help="Take the newest version that this run pushed.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="FOLDER", help="Take this SavedModel.")] = None,
    overrides: Overrides = None,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, max=_LARGEST, help="Tokens at most; the end of the model's context ends it, too.")
    ] = 100,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token each time.")] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, max=_LARGEST, help="Choose among the k likeliest tokens; 0: all.")] = 0,
    top_p: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Choose among the likeliest tokens that reach p together; 1: all.")
    ] = 0.95,
    repetition_penalty: Annotated[
        float, typer.Option(min=0.01, help="Above 1: tokens that were there already become less likely.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=-_LARGEST, max=_LARGEST, help="The same seed gives the same text.")] = 0,
) -> None:
    """Continue a prompt with the newest model in the registry."""
    if (config is None) == (model is None):
        raise ConfigError("give either --config FILE or --model FOLDER")
    folder = Path(model) if model else _newest(str(config), overrides)
    if not (folder / "saved_model.pb").exists():
        raise ModelError(f"{folder}: holds no SavedModel; give the folder that has saved_model.pb")
    check_files(folder)
    loaded = _load(folder)
    import tensorflow as tf

    def row(value: float | bytes, dtype: "tf.DType") -> "tf.Tensor":
        return tf.constant([value], dtype)

    states = _states(
        loaded.signatures,
        prompt=row(prompt.encode("utf-8", "surrogateescape"), tf.string),
        max_new_tokens=row(max_new_tokens, tf.int32),
        temperature=row(temperature, tf.float32),
        top_k=row(top_k, tf.int32),
        top_p=row(top_p, tf.float32),
        repetition_penalty=row(repetition_penalty, tf.float32),
        seed=row(seed, tf.int32),
    )
    try:
        start = next(states)
    except tf.errors.InvalidArgumentError as error:
        said = re.search(r"assertion failed: \[(.*?)(?:\. Rows, from 0:)?\]", error.message)
        raise ConfigError(f"the model does not take this: {said[1] if said else error.message}") from None
    dropped = int(start["prompt_tokens_dropped"][0])
    if dropped:
        typer.echo(f"note: the first {dropped} tokens of the prompt did not fit and were left out", err=True)
    typer.echo(typer.style(prompt, bold=True), nl=False)
    shown = 0
    for state in states:
        text = state["text"].numpy()[0].decode("utf-8", "replace")
        typer.echo(text[shown:], nl=False)  # each text begins with the one before
        shown = len(text)
    typer.echo()


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


def _load(folder: Path) -> Any:
    """The model; whoever uses its signatures must keep it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with quiet_stderr():
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 - registers the tokenizer's op

        try:
            model = tf.saved_model.load(str(folder))
            _ = model.signatures["prefill"], model.signatures["decode"]
        except (OSError, KeyError, ValueError, tf.errors.OpError) as error:
            raise ModelError(
                f"{folder}: a model of another kind or of an older Tokenmill, or a damaged one ({error}); run the "
                "pipeline again or take another version"
            ) from error
    return model


def _states(
    signatures: "Mapping[str, tf.types.experimental.ConcreteFunction]", **inputs: "tf.Tensor"
) -> "Iterator[dict[str, tf.Tensor]]":
    """After the prompt, after the first token, and from then on every few tokens."""
    import tensorflow as tf

    decode = signatures["decode"]
    names = decode.structured_input_signature[1].keys() - {"num_steps"}
    state = signatures["prefill"](**inputs)
    yield state
    for num_steps in itertools.chain([1], itertools.repeat(_STEPS_AT_ONCE)):
        if all(state["finish_reason"].numpy()):
            return
        state = decode(num_steps=tf.constant(num_steps), **{name: state[name] for name in names})
        yield state
