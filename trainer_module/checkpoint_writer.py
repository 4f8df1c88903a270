"""Saves checkpoints while training goes on: a copy of the variables is taken at once and written by a thread."""

import concurrent.futures
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import tensorflow as tf

from foundation.errors import HostError
from trainer_module import checkpoint
from trainer_module.config import TrainConfig


class CheckpointWriter:
    """Writes one checkpoint at a time, in order. A context manager: leaving it waits for the last one."""

    def __init__(self, folder: Path, config: TrainConfig, fingerprint: str, writes: bool = True):
        """Writes into `folder`; unless `config.async_checkpoints`, `save` returns when all is on the disk.

        Args:
          writes: False: does nothing, since another process writes the same.
        """
        self._writes = writes
        self._folder = folder
        self._config = config
        self._fingerprint = fingerprint
        self._executor = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: concurrent.futures.Future[Path] | None = None

    def save(
        self, step: int, variables: Mapping[str, tf.Variable], progress: Mapping[str, Any], keep_step: int | None
    ) -> None:
        """Saves the variables as they are now.

        Raises:
          HostError: this save, or the one before, could not be written; no earlier checkpoint is touched.
        """
        if not self._writes:
            return
        self.wait()
        # A copy of each, since the next step writes into the variables' own memory.
        copies = {name: tf.raw_ops.DeepCopy(x=variable) for name, variable in variables.items()}
        self._pending = self._executor.submit(
            checkpoint.save,
            self._folder,
            step,
            copies,
            self._fingerprint,
            self._config.keep_checkpoints,
            progress,
            keep_step,
        )
        if not self._config.async_checkpoints:
            self.wait()

    def wait(self) -> None:
        """Returns when nothing is being written any more; raises what went wrong with it."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            pending.result()
        except (OSError, tf.errors.OpError) as error:
            raise HostError(
                f"{self._folder}: a checkpoint could not be written ({error}); earlier ones are untouched; free some "
                "space or mend the disk, and run again: training goes on from the newest"
            ) from error

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            self._executor.shutdown(wait=True)
