"""Continued pretraining: a training that begins with the weights of an exported model.

The weights are taken, nothing else: moments, schedule and step begin anew. The tokenizer must be the very one that
the weights were trained with, since an id means another piece to another tokenizer; every shape must fit.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging
from pydantic import ValidationError

from foundation.errors import ModelError, TrainingError
from foundation.events import emit
from foundation.rows import PackingManifest
from trainer_module.config import ModelConfig
from trainer_module.export import ASSETS_EXTRA, MODEL_FILE
from trainer_module.parameters import parameter_table
from trainer_module.state import TrainState

_WEIGHT = "_weights/{}/.ATTRIBUTES/VARIABLE_VALUE"
"""Where TensorFlow keeps entry number {} of `ExportedModel._weights`, which is in the order of the parameter table."""


def decisive_values(model: Path | None) -> dict[str, str]:
    """What a warm start adds to what decides a training: which weights it begins with."""
    if model is None:
        return {}
    digest = hashlib.sha256()
    for path in sorted((model / "variables").glob("variables.*")):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return {"warm_start.weights": digest.hexdigest()}


def take_weights(state: TrainState, config: ModelConfig, train_rows: Path, model: Path | None) -> None:
    """Gives a fresh state the weights of an exported model; without one it stays as it is.

    Args:
      train_rows: folder of packed rows, which knows the tokenizer that made it.
      model: a SavedModel that Tokenmill exported.

    Raises:
      TrainingError: it has another tokenizer, or weights of other names or shapes.
      ModelError: it says nothing of itself, or its weights cannot be read.
    """
    if model is None:
        return
    description = _describe(model)
    theirs, ours = description["tokenizer_sha256"], PackingManifest.load(train_rows).tokenizer_sha256
    if theirs != ours:
        raise TrainingError(
            f"{model}: the baseline was trained with another tokenizer (SHA-256 {theirs}, ours {ours}), so its weights "
            "mean nothing here; set tokenizer.model_file to the baseline's tokenizer, or train.warm_start: none"
        )
    names = list(parameter_table(_config_of(description, model)))
    values = _read(model, names)
    table = parameter_table(config)
    faults = [f"{name} is missing" for name in table if name not in values]
    faults += [f"{name} has no place" for name in values if name not in table]
    faults += [
        f"{name} is {list(values[name].shape)}, {list(parameter.shape)} here"
        for name, parameter in table.items()
        if name in values and tuple(values[name].shape) != parameter.shape
    ]
    if faults:
        more = f"; and {len(faults) - 4} more" if len(faults) > 4 else ""
        raise TrainingError(
            f"{model}: the baseline's weights do not fit this model: {'; '.join(faults[:4])}{more}; set `model` as the "
            "baseline has it, or train.warm_start: none"
        )
    for group in (state.params, state.averages):
        for name, variable in group.items():
            variable.assign(values[name])
    logging.info("training begins with the weights of %s", model)
    emit("note", text=f"training begins with the weights of {model}")


def _describe(model: Path) -> dict[str, Any]:
    path = model / ASSETS_EXTRA / MODEL_FILE
    try:
        description: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _ = description["model"], description["tokenizer_sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{path}: does not say what the baseline is ({error!r}); set train.warm_start: none"
        ) from error
    return description


def _config_of(description: dict[str, Any], model: Path) -> ModelConfig:
    try:
        return ModelConfig.model_validate(description["model"])
    except ValidationError as error:
        raise ModelError(
            f"{model}: the baseline's configuration is not one of this version's ({error.errors()[0]['msg']}); set "
            "train.warm_start: none"
        ) from error


def _read(model: Path, names: list[str]) -> dict[str, Any]:
    """The weights by name."""
    try:
        reader = tf.train.load_checkpoint(str(model / "variables" / "variables"))
        count = sum(key.startswith("_weights/") for key in reader.get_variable_to_shape_map())
        if count != len(names):
            raise ModelError(f"{model}: holds {count} weights, its configuration says {len(names)}; export it again")
        return {name: reader.get_tensor(_WEIGHT.format(number)) for number, name in enumerate(names)}
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise ModelError(f"{model}: the baseline's weights cannot be read ({error}); verify it") from error
