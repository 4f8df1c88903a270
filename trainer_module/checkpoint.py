"""Checkpoints: whole, verified, and the newest valid one wins.

`FOLDER/step-00000200/` holds the variables in TensorFlow's tensor bundle format (each tensor with its
own checksum, readable by `tf.train.load_checkpoint`) and `checkpoint.json`: step, fingerprint of the
run, SHA-256 of each file. A checkpoint is written beside its place and renamed; what is old is
removed after that. There is no pointer to go stale: the newest folder that verifies is the one.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf
from absl import logging

from foundation import atomic
from foundation.errors import TrainingError

_BUNDLE = "variables"
_MANIFEST = "checkpoint.json"
_STEP_FOLDER = re.compile(r"step-(\d{8,})")


def save(folder: Path, step: int, variables: Mapping[str, tf.Variable], fingerprint: str, keep: int) -> Path:
    """Writes the checkpoint of `step` and removes all but the newest `keep`.

    Args:
      folder: of this training's checkpoints.
      variables: by the name under which each is stored.
      fingerprint: of everything that must be equal for a resume to be exact.

    Returns:
      The new checkpoint's folder.
    """
    target = folder / f"step-{step:08d}"
    if target.exists():  # left by a run that was stopped between saving and going on, or damaged
        shutil.rmtree(target)
    with atomic.new_folder(target) as staged:
        names = list(variables)
        tf.raw_ops.SaveV2(
            prefix=str(staged / _BUNDLE),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.convert_to_tensor(variables[name]) for name in names],
        )
        manifest = {
            "step": step,
            "fingerprint": fingerprint,
            "sha256": {path.name: _sha256(path) for path in sorted(staged.iterdir())},
        }
        (staged / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    for old in _step_folders(folder)[keep:]:
        shutil.rmtree(old)
    return target


def restore_newest(folder: Path, variables: Mapping[str, tf.Variable], fingerprint: str) -> int | None:
    """Assigns the newest valid checkpoint to `variables`.

    Returns:
      Its step, or None where there is none.

    Raises:
      TrainingError: the checkpoint belongs to a run with another fingerprint.
    """
    for candidate in _step_folders(folder):
        fault = verify(candidate)
        if fault:
            logging.error("checkpoint %s is damaged (%s); trying the one before", candidate, fault)
            continue
        manifest = json.loads((candidate / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["fingerprint"] != fingerprint:
            raise TrainingError(
                f"{candidate}: written by a run with other settings or data (fingerprint {manifest['fingerprint']}, "
                f"this run has {fingerprint}); delete {folder} to start from scratch"
            )
        names = list(variables)
        values = tf.raw_ops.RestoreV2(
            prefix=str(candidate / _BUNDLE),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            dtypes=[variables[name].dtype for name in names],
        )
        for name, value in zip(names, values, strict=True):
            variables[name].assign(value)
        return int(manifest["step"])
    return None


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
