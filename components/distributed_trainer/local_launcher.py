"""The launcher for this host: worker processes that are started again when one of them dies."""

import contextlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TextIO

from absl import logging

from components.distributed_trainer.launcher import Job, Outcome
from components.distributed_trainer.worker_group import Failure, WorkerGroup
from foundation.errors import (
    ConfigError,
    CorpusError,
    HostError,
    ModelError,
    PipelineError,
    PreemptedError,
    TokenmillError,
    TrainingError,
)
from foundation.events import emit
from trainer_module.config import DistributionConfig

_WORKER = "trainer_module.worker"
_LONGEST_PAUSE_S = 60.0
_LASTING = (ConfigError, CorpusError, ModelError, TrainingError)
"""What happens again however often one tries."""


class LocalLauncher:
    """Starts `num_workers` processes; any one's death stops all, and all start again from the newest checkpoint."""

    def __init__(self, config: DistributionConfig, module: str = _WORKER, output: TextIO | None = None):
        """Prepares a launcher.

        Args:
          module: what each worker runs.
          output: gets what the workers print. None: our own standard output.
        """
        self._output = output
        self._config = config
        self._module = module
        self.group: WorkerGroup | None = None
        """The workers of now; None between two attempts."""
        self._stop = threading.Event()

    def run(self, job: Job) -> Outcome:
        """As `Launcher`; SIGTERM to this process is passed on to the workers, which save.

        Raises:
          TokenmillError: the first worker's own error, after `max_restarts` restarts at most.
        """
        with tempfile.TemporaryDirectory(prefix="tokenmill-job-") as folder, self._passing_on_stops():
            path = Path(folder) / "job.json"
            job.save(path)
            restarts = 0
            while True:
                with WorkerGroup(self._module, path, self._config, self._output or sys.stdout) as group:
                    self.group = group
                    if self._stop.is_set():
                        group.ask_to_stop()
                    failure = group.wait()
                    self.group = None
                if failure is None:
                    return Outcome(restarts)
                error = _error_of(failure, restarts)
                if isinstance(error, (PreemptedError, *_LASTING)) or restarts >= self._config.max_restarts:
                    raise error
                if self._stop.is_set():
                    raise PreemptedError(f"training was asked to stop, when {failure.message}; run again to go on")
                restarts += 1
                self._pause(restarts, failure)

    def _pause(self, restarts: int, failure: Failure) -> None:
        longest = max(_LONGEST_PAUSE_S, self._config.restart_pause_s)
        pause_s = min(self._config.restart_pause_s * 2 ** (restarts - 1), longest)
        text = f"{failure.message}; all start again in {pause_s:g} s ({restarts} of {self._config.max_restarts})"
        logging.error(text)
        emit("note", text=text)
        until = time.monotonic() + pause_s
        while time.monotonic() < until and not self._stop.wait(0.1):
            pass

    @contextlib.contextmanager
    def _passing_on_stops(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            self._stop.set()
            if self.group is not None:
                self.group.ask_to_stop()

        before = signal.signal(signal.SIGTERM, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _error_of(failure: Failure, restarts: int) -> TokenmillError:
    """The failure as an error of the kind that the worker had."""
    kinds = (*_LASTING, HostError, PreemptedError)
    for kind in kinds:
        if failure.exit_code == kind.exit_code:
            return kind(failure.message)
    tries = f", after {restarts} restarts" if restarts else ""
    return PipelineError(f"training failed{tries}: {failure.message}")
