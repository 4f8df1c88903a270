"""Proof that a training survives a worker's death: run twice, once with a worker killed, and compared bit by bit."""

import dataclasses
import json
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from components.distributed_trainer.launcher import Job
from components.distributed_trainer.local_launcher import LocalLauncher
from foundation.errors import PreemptedError, TrainingError
from trainer_module import checkpoint
from trainer_module.compute_path import CHOICE_NAME
from trainer_module.config import DistributionConfig
from trainer_module.train_log import LOG_NAME, read_train_log

_LOOK_EVERY_S = 0.01


class Part(NamedTuple):
    """One part of the comparison."""

    name: str
    number: int
    """Things compared: tensors, steps."""

    difference: str | None
    """The first one, in words; None: bit for bit the same."""


@dataclasses.dataclass(frozen=True)
class ResumeCheck:
    """What came of it."""

    killed_rank: int
    killed_at: int
    """Last step in the log when the worker was killed."""

    resumed_from: int
    """Step of the checkpoint from which all went on; 0: from the start."""

    last_step: int
    seconds_to_first_step: float
    """From the kill to the first new step in the log."""

    parts: list[Part]

    @property
    def same(self) -> bool:
        """Whether the two trainings are the same, bit for bit."""
        return all(part.difference is None for part in self.parts)


def check_resume(
    job: Job,
    distribution: DistributionConfig,
    kill_at: int,
    last_step: int,
    folder: Path,
    on_note: Callable[[str], None],
    output: TextIO,
    module: str = "trainer_module.worker",
) -> ResumeCheck:
    """Trains to `last_step` undisturbed, then again with one worker killed after step `kill_at`, and compares.

    Args:
      job: of the training; its `checkpoint_root` is replaced, and nothing is exported.
      folder: for checkpoints and logs of both.
      on_note: gets a line whenever something is worth telling.
      output: gets what the workers print.
      module: what each worker runs.

    Raises:
      TrainingError: the training came to its end before the kill or before `last_step`.
      TokenmillError: as the launcher.
    """
    distribution = distribution.model_copy(update={"launcher": "local", "max_restarts": 1, "restart_pause_s": 0.0})
    whole, broken = (
        _Training(job, distribution, folder / name, last_step, module, output) for name in ("whole", "broken")
    )
    on_note(f"trains {last_step} steps undisturbed")
    whole.run()
    whole.share_choice_with(broken)

    rank = random.randrange(distribution.num_workers)
    on_note(f"trains them again, and kills worker {rank} of {distribution.num_workers} after step {kill_at}")
    kill = _Kill(broken, rank, kill_at)
    kill.start()
    try:
        broken.run()
    finally:
        kill.give_up()
    if kill.killed_at is None:
        raise TrainingError(
            f"training ended before a worker could be killed after step {kill_at}; choose an earlier step"
        )
    resumed_from = max((step for step in kill.checkpoints if step <= kill.killed_at), default=0)
    return ResumeCheck(
        rank, kill.killed_at, resumed_from, last_step, kill.seconds_to_first_step, _compare(whole, broken, last_step)
    )


class _Training:
    """One of the two."""

    def __init__(
        self, job: Job, distribution: DistributionConfig, folder: Path, last_step: int, module: str, output: TextIO
    ):
        self.root = folder
        custom = {
            **job.custom_config,
            "checkpoint_root": str(folder),
            "distribution": distribution.model_dump(),
            "stop_after": last_step,
        }
        self._job = dataclasses.replace(job, custom_config=custom)
        self.launcher = LocalLauncher(distribution, module, output)

    def run(self) -> None:
        try:
            self.launcher.run(self._job)
        except PreemptedError:  # which is how a training says that it stops before its end
            return
        raise TrainingError("training came to its end before the step at which it was to stop; choose an earlier step")

    @property
    def folder(self) -> Path:
        """Of checkpoints and log; one that does not exist, before there is one."""
        return next((path.parent for path in self.root.glob(f"*/{LOG_NAME}")), self.root / "none")

    def lines(self) -> dict[int, dict[str, Any]]:
        """Of the log, by step."""
        path = self.folder / LOG_NAME
        return {line["step"]: line for line in read_train_log(path) if "loss" in line} if path.exists() else {}

    def share_choice_with(self, other: "_Training") -> None:
        """Has the other compile its step in the same way: a second measurement might come out differently."""
        if (self.root / CHOICE_NAME).exists():
            other.root.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / CHOICE_NAME, other.root / CHOICE_NAME)


class _Kill(threading.Thread):
    """Kills a worker when the log reaches a step."""

    def __init__(self, training: _Training, rank: int, step: int):
        super().__init__(daemon=True)
        self._training, self._rank, self._step = training, rank, step
        self._ended = threading.Event()
        self.killed_at: int | None = None
        self.checkpoints: list[int] = []
        """Steps of the checkpoints that lay there after the kill."""
        self.seconds_to_first_step = float("nan")

    def run(self) -> None:
        group = None
        while not self._ended.wait(_LOOK_EVERY_S):
            group = self._training.launcher.group
            newest = max(self._training.lines(), default=0)
            if group is not None and newest >= self._step:
                break
        if group is None or self._ended.is_set():
            return
        os.kill(group.pids[self._rank], signal.SIGKILL)
        killed = time.monotonic()
        self.killed_at = newest
        while self._training.launcher.group is group and not self._ended.wait(_LOOK_EVERY_S):
            pass
        folders = self._training.folder.glob("step-*")
        self.checkpoints = [int(path.name.removeprefix("step-")) for path in folders if checkpoint.verify(path) is None]
        newest = max(self._training.lines(), default=0)
        # The log's lines after the checkpoint are dropped by the new workers; then new ones come.
        resumed = max(self.checkpoints, default=0)
        while not self._ended.wait(_LOOK_EVERY_S):
            if max(self._training.lines(), default=0) <= resumed:
                break
        while not self._ended.wait(_LOOK_EVERY_S):
            if max(self._training.lines(), default=0) > resumed:
                self.seconds_to_first_step = time.monotonic() - killed
                return

    def give_up(self) -> None:
        self._ended.set()
        self.join()


def _compare(whole: _Training, broken: _Training, last_step: int) -> list[Part]:
    one, other = (_variables(training.folder, last_step) for training in (whole, broken))
    parts = []
    for kind in dict.fromkeys(name.split("/")[0] for name in one):
        names = [name for name in one if name.split("/")[0] == kind]
        different = [name for name in names if name not in other or one[name].tobytes() != other[name].tobytes()]
        parts.append(Part(kind.replace("_", " "), len(names), different[0] if different else None))
    lines = whole.lines(), broken.lines()
    for key, name in (("loss", "losses"), ("learning_rate", "learning rates"), ("rows_digest", "rows consumed")):
        steps = [step for step in lines[0] if lines[1].get(step, {}).get(key) != lines[0][step][key]]
        parts.append(Part(name, len(lines[0]), f"step {steps[0]}" if steps else None))
    return parts


def _variables(folder: Path, step: int) -> dict[str, np.ndarray]:
    """Every variable of a checkpoint."""
    import tensorflow as tf

    path = checkpoint.folder_of(folder, step)
    names = json.loads((path / "checkpoint.json").read_text(encoding="utf-8"))
    assert names["step"] == step
    reader = tf.train.load_checkpoint(str(path / "variables"))
    return {name: np.asarray(reader.get_tensor(name)) for name in sorted(reader.get_variable_to_shape_map())}
