"""Checkpoints: whole, verified, and the newest valid one wins.

`FOLDER/step-00000200/` holds the variables in TensorFlow's tensor bundle format (each tensor with its
own checksum, readable by `tf.train.load_checkpoint`) and `checkpoint.json`: step, fingerprint of the
run, its progress, SHA-256 of each file. A checkpoint is written beside its place and renamed; what is
old is removed after that. There is no pointer to go stale: the newest folder that verifies is the one.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from foundation import atomic
from foundation.errors import TrainingError

_BUNDLE = "variables"
_MANIFEST = "checkpoint.json"
_STEP_FOLDER = re.compile(r"step-(\d{8,})")

Values = Mapping[str, tf.Tensor | tf.Variable]


class Restored(NamedTuple):
    """What a checkpoint says beside the variables."""

    step: int
    progress: dict[str, Any]
    """As it was given to `save`."""


def save(
    folder: Path,
    step: int,
    values: Values,
    fingerprint: str,
    keep: int,
    progress: Mapping[str, Any] | None = None,
    keep_step: int | None = None,
) -> Path:
    """Writes the checkpoint of `step` and removes all but the newest `keep`.

    Args:
      folder: of this training's checkpoints.
      values: by the name under which each is stored.
      fingerprint: of everything that must be equal for a resume to be exact.
      progress: JSON values to be given back with the variables.
      keep_step: a step whose checkpoint stays however old it is.

    Returns:
      The new checkpoint's folder.
    """
    target = folder_of(folder, step)
    if target.exists():  # left by a run that was stopped between saving and going on, or damaged
        shutil.rmtree(target)
    with atomic.new_folder(target) as staged:
        names = list(values)
        tf.raw_ops.SaveV2(
            prefix=str(staged / _BUNDLE),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.convert_to_tensor(values[name]) for name in names],
        )
        manifest = {
            "step": step,
            "fingerprint": fingerprint,
            "progress": dict(progress or {}),
            "sha256": {path.name: _sha256(path) for path in sorted(staged.iterdir())},
        }
        (staged / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    for old in _step_folders(folder)[keep:]:
        if keep_step is None or old != folder_of(folder, keep_step):
            shutil.rmtree(old)
    return target


def folder_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return folder / f"step-{step:08d}"


def newest_valid(folder: Path) -> Path | None:
    """The newest checkpoint that is whole; None where there is none.

    A damaged one is named in the log, and the one before is tried.
    """
    for candidate in _step_folders(folder):
        fault = verify(candidate)
        if fault:
            logging.error("checkpoint %s is damaged (%s); trying the one before", candidate, fault)
            continue
        return candidate
    return None


def restore_newest(folder: Path, variables: Mapping[str, tf.Variable], fingerprint: str) -> Restored | None:
    """Assigns the newest valid checkpoint to `variables`; None where there is none.

    Raises:
      TrainingError: the checkpoint belongs to a run with another fingerprint.
    """
    newest = newest_valid(folder)
    return restore(newest, variables, fingerprint) if newest else None


def restore(checkpoint: Path, variables: Mapping[str, tf.Variable], fingerprint: str) -> Restored:
    """Assigns one checkpoint, which `verify` has found whole, to `variables`.

    Raises:
      TrainingError: it belongs to a run with another fingerprint.
    """
    manifest = json.loads((checkpoint / _MANIFEST).read_text(encoding="utf-8"))
    if manifest["fingerprint"] != fingerprint:
        raise TrainingError(
            f"{checkpoint}: written by a run with other settings or data (fingerprint {manifest['fingerprint']}, "
            f"this run has {fingerprint}); delete {checkpoint.parent} to start from scratch"
        )
    names = list(variables)
    values = tf.raw_ops.RestoreV2(
        prefix=str(checkpoint / _BUNDLE),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        dtypes=[variables[name].dtype for name in names],
    )
    for name, value in zip(names, values, strict=True):
        variables[name].assign(value)
    return Restored(int(manifest["step"]), manifest["progress"])


def restore_best(folder: Path, step: int, variables: Mapping[str, tf.Variable], fingerprint: str) -> int:
    """Assigns the checkpoint of one step, to export from it.

    Returns:
      The step.

    Raises:
      TrainingError: it is not there, or damaged.
    """
    path = folder_of(folder, step)
    fault = verify(path)
    if fault:
        raise TrainingError(
            f"{path}: the checkpoint with the best validation is damaged ({fault}); set train.keep_best: false to "
            "export the last one"
        )
    return restore(path, variables, fingerprint).step


def has_any(folder: Path) -> bool:
    """Whether a checkpoint, valid or not, is in the folder."""
    return bool(_step_folders(folder))


def remove_unfinished(folder: Path) -> None:
    """Removes what saves that were killed have left beside the checkpoints."""
    if folder.exists():
        for path in folder.iterdir():
            if path.name.startswith(atomic.STAGING_PREFIX) and path.is_dir():
                shutil.rmtree(path)


def verify(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint's files, in words; None if nothing is."""
    try:
        manifest = json.loads((checkpoint / _MANIFEST).read_text(encoding="utf-8"))
        for name, digest in manifest["sha256"].items():
            if _sha256(checkpoint / name) != digest:
                return f"{name} has changed since it was written"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _step_folders(folder: Path) -> list[Path]:
    """Newest first."""
    if not folder.exists():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _STEP_FOLDER.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
