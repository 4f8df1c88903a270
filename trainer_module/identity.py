"""What makes two trainings the same one: everything that decides the weights, and its fingerprint.

Each training has a folder of its own, named by its fingerprint. A changed setting is another training
and begins anew, but not silently while one that was stopped waits to go on.
"""

import contextlib
import fcntl
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from foundation import atomic
from foundation.errors import TrainingError
from foundation.rows import MANIFEST_NAME, PackingManifest
from trainer_module import checkpoint
from trainer_module.config import ModelConfig, TrainConfig

IDENTITY_NAME = "training.json"
"""Beside the checkpoints: the values behind the fingerprint, the code that trained, whether training has ended."""

_LOCK_NAME = ".lock"
_CODE = "code"

# Settings that change how a training is watched and kept, but not one bit of its result.
_WITHOUT_EFFECT = {
    "abandon_unfinished",
    "async_checkpoints",
    "checkpoint_every",
    "keep_checkpoints",
    "log_every",
    "warm_start",  # the weights themselves count (`warm_start.decisive_values`)
}
# These decide which weights are taken in the end: without early stop and keep_best not even that.
_OF_VALIDATION = {"eval_every", "eval_rows"}


def decisive_values(model_config: ModelConfig, config: TrainConfig, train_rows: Path, code_hash: str) -> dict[str, Any]:
    """Everything that decides the weights, flat: `train.seed`, `model.width`, `rows.tokenizer_sha256`, `code`, ..."""
    excluded = set(_WITHOUT_EFFECT)
    if config.early_stop_validations is None and not config.keep_best:
        excluded |= _OF_VALIDATION
    if config.input != "stream":
        excluded |= {"input", "shuffle_buffer_rows"}  # mapped and in memory, rows are the same in the same order
    values = {f"model.{key}": value for key, value in model_config.model_dump().items()}
    values |= {f"train.{key}": value for key, value in config.model_dump(exclude=excluded).items()}
    values["rows.tokenizer_sha256"] = PackingManifest.load(train_rows).tokenizer_sha256
    values["rows.sha256"] = hash_of_rows(train_rows)
    values[_CODE] = code_hash
    return values


def hash_of_rows(folder: Path) -> str:
    """SHA-256 of a split's manifest, which has those of its shards."""
    return hashlib.sha256((folder / MANIFEST_NAME).read_bytes()).hexdigest()


def fingerprint_of(values: dict[str, Any]) -> str:
    """16 hex digits."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


class Opened(NamedTuple):
    """A training's folder."""

    folder: Path
    fingerprint: str
    """With which its checkpoints are marked."""


def open_folder(root: Path, values: dict[str, Any], abandon_unfinished: bool) -> Opened:
    """The folder of the training that `values` describe, made if need be.

    A training that was stopped goes on though the code was edited meanwhile, which the log says and
    `training.json` keeps: whoever mends what stopped it must not lose it. One that has ended begins anew.

    Raises:
      TrainingError: it is a new one, while another in `root` was stopped and could go on; the message has both
        values of each setting in which they differ.
    """
    fingerprint = fingerprint_of(values)
    folder = root / fingerprint
    if not folder.exists():
        for other in _unfinished(root):
            identity = _read(other)
            changed = _differences(identity["decisive"], values)
            if changed.keys() <= {_CODE}:
                logging.warning("the code has changed since the training in %s was stopped; it goes on", other)
                _write(other, {**identity, "codes": [*identity["codes"], values[_CODE]]})
                return Opened(other, other.name)
            if not abandon_unfinished:
                raise TrainingError(_refusal(other, changed))
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / IDENTITY_NAME).exists():
        _write(folder, {"finished": False, "codes": [values[_CODE]], "decisive": values})
    return Opened(folder, fingerprint)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps a training's folder to this process; the kernel gives it back however the process ends.

    Raises:
      TrainingError: another process is at work in it.
    """
    with (folder / _LOCK_NAME).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(
                f"{folder}: another process is at work on this training; wait for it or stop it, then run again"
            ) from None
        yield


@contextlib.contextmanager
def closed_on_divergence(folder: Path) -> Iterator[None]:
    """A training that has gone wrong does not wait to go on: whoever mends its settings begins another."""
    try:
        yield
    except TrainingError:
        mark_finished(folder)
        raise


def mark_finished(folder: Path) -> None:
    """Notes that the training has reached its end."""
    _write(folder, {**_read(folder), "finished": True})


def _read(folder: Path) -> dict[str, Any]:
    identity: dict[str, Any] = json.loads((folder / IDENTITY_NAME).read_text(encoding="utf-8"))
    return identity


def _write(folder: Path, identity: dict[str, Any]) -> None:
    atomic.write_text(folder / IDENTITY_NAME, json.dumps(identity, indent=2) + "\n")


def _unfinished(root: Path) -> list[Path]:
    """Folders of trainings that were stopped after a checkpoint, newest first."""
    found = []
    for path in root.glob(f"*/{IDENTITY_NAME}"):
        try:
            finished = _read(path.parent)["finished"]
        except (OSError, ValueError, KeyError):
            continue  # not ours, or spoilt: it does not stand in the way of a new training
        if not finished and checkpoint.has_any(path.parent):
            found.append((path.stat().st_mtime, path.parent))
    return [folder for _, folder in sorted(found, reverse=True)]


def _differences(before: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Both values of each key in which they differ."""
    keys = sorted(before.keys() | now.keys())
    return {key: (before.get(key), now.get(key)) for key in keys if before.get(key) != now.get(key)}


def _refusal(other: Path, changed: dict[str, tuple[Any, Any]]) -> str:
    listed = "; ".join(f"{key}: {before!r} then, {now!r} now" for key, (before, now) in changed.items())
    return (
        f"{other}: a training that was stopped could go on, but not exactly: {listed}. Set that back to "
        "go on with it; or set train.abandon_unfinished: true to begin another and leave it, or delete its folder"
    )
