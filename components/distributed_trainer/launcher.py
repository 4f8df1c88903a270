"""Launchers: how the processes of a training are started. All do the same job, and have one interface."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

from foundation import atomic


@dataclasses.dataclass(frozen=True)
class Job:
    """The arguments of `trainer_module.run.run_fn`, as every process gets them."""

    train_files: list[str]
    eval_files: list[str]
    serving_model_dir: str
    model_run_dir: str
    custom_config: dict[str, Any]

    def save(self, path: Path) -> None:
        """Writes the file that `trainer_module.worker` reads."""
        atomic.write_text(path, json.dumps(dataclasses.asdict(self)) + "\n")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a job that ended well."""

    restarts: int = 0
    """How often all processes had to start again."""


class Launcher(Protocol):
    """Does a job."""

    def run(self, job: Job) -> Outcome:
        """Starts the processes and waits for their end.

        Raises:
          TokenmillError: the job failed; the error is that of the process that failed first.
          PreemptedError: training was asked to stop, and has saved.
        """


class InProcess:
    """Training in the process that asks for it."""

    def run(self, job: Job) -> Outcome:
        """As `Launcher`."""
        # Imported here: a process that only makes or compiles the graph has no use for TensorFlow's start-up.
        from trainer_module.run import run_fn

        run_fn(SimpleNamespace(**dataclasses.asdict(job)))
        return Outcome()
