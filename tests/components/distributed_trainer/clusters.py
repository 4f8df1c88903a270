"""Trainings of a tiny model on clusters of this host, for the tests of this folder."""

import dataclasses
import os
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from components.distributed_trainer.launcher import Job
from components.distributed_trainer.local_launcher import LocalLauncher
from tests.trainer_module.conftest import random_rows, write_rows
from trainer_module.config import DistributionConfig, ModelConfig, TrainConfig
from trainer_module.train_log import LOG_NAME, read_train_log

MODEL = ModelConfig(vocab_size=300, seq_len=16, num_layers=1, width=16, num_heads=2)
TRAIN = TrainConfig(
    steps=20,
    warmup_steps=2,
    global_batch_size=8,
    log_every=1,
    eval_every=10,
    checkpoint_every=4,
    compile="graph",
)
WORKER = "tests.components.distributed_trainer.bare_worker"
_KILLER_PATIENCE_S = 120.0


def write_splits(root: Path) -> None:
    """Rows of which the first of each batch have few valid tokens, so that workers have unequal numbers of them."""
    token_ids, segment_ids = random_rows(24, 16)
    segment_ids[::3, 4:] = 0
    write_rows(root / "train", token_ids, segment_ids, shards=2)
    write_rows(root / "eval", *random_rows(6, 16, seed=1))


@dataclasses.dataclass(frozen=True)
class Result:
    """What a training left."""

    restarts: int
    variables: dict[str, np.ndarray]
    validation_loss: float
    lines: list[dict]
    weights: list[str]
    """Digest of each worker's weights."""

    collectives: str

    @property
    def losses(self) -> list[float]:
        return [line["loss"] for line in self.lines if "loss" in line]

    @property
    def digests(self) -> dict[int, str]:
        """Of the rows consumed up to each step."""
        return {line["step"]: line["rows_digest"] for line in self.lines if "loss" in line}


def job_of(rows: Path, folder: Path, train: TrainConfig, distribution: DistributionConfig, **settings) -> Job:
    """For `bare_worker`."""
    return Job(
        [str(rows / "train")],
        [str(rows / "eval")],
        str(folder / "model"),
        str(folder),
        {
            "model": MODEL.model_dump(),
            "train": train.model_dump(),
            "distribution": distribution.model_dump(),
            "checkpoint_root": str(folder / "checkpoints"),
            "code_hash": "",
            **settings,
        },
    )


class Cluster:
    """One training's folder; it may be launched more than once, with other workers each time."""

    def __init__(self, rows: Path, folder: Path, **train):
        folder.mkdir()
        self.folder = folder
        self._rows = rows
        self._train = TRAIN.model_copy(update=train)
        self.launcher: LocalLauncher | None = None

    def run(self, strategy="multi_worker", num_workers=2, num_devices=None, settings=None, **distribution) -> Result:
        """Trains; settings: for `bare_worker`."""
        defaults = {"max_restarts": 0, "restart_pause_s": 0.1, "heartbeat_timeout_s": 20.0}
        config = DistributionConfig(
            strategy=strategy,
            num_workers=num_workers,
            num_devices=num_devices,
            launcher="local",
            **{**defaults, **distribution},
        )
        job = job_of(self._rows, self.folder, self._train, config, **(settings or {}))
        self.launcher = LocalLauncher(config, WORKER)
        outcome = self.launcher.run(job)
        with np.load(self.folder / "trained.npz") as saved:
            variables = dict(saved)
        loss = float(variables.pop("loss"))
        weights = [(self.folder / f"weights-{rank}.txt").read_text() for rank in range(num_workers)]
        collectives = (self.folder / "collectives.txt").read_text()
        return Result(outcome.restarts, variables, loss, self.lines(), weights, collectives)

    def lines(self) -> list[dict]:
        """Of the training log so far."""
        return [line for path in self.checkpoints().glob(LOG_NAME) for line in read_train_log(path)]

    def checkpoints(self) -> Path:
        """The training's folder; one that does not exist, before there is one."""
        return next((self.folder / "checkpoints").glob("*"), self.folder / "none")

    def at_step(self, step: int, action) -> threading.Thread:
        """Calls `action` with the workers' process ids once the log has reached a step. Join it after the run."""
        return self.when(lambda: any(line["step"] >= step for line in self.lines()), action)

    def when(self, condition, action) -> threading.Thread:
        """Calls `action` with the workers' process ids once a condition holds."""

        def watch() -> None:
            until = time.monotonic() + _KILLER_PATIENCE_S
            while time.monotonic() < until:
                group = self.launcher.group if self.launcher is not None else None
                if group is not None and condition():
                    action(group.pids)
                    return
                time.sleep(0.002)
            raise AssertionError("what the test waits for did not come")

        thread = threading.Thread(target=watch)
        thread.start()
        return thread


def left_behind() -> list[str]:
    """Worker processes that still run below this one."""
    return [" ".join(child.cmdline()) for child in psutil.Process(os.getpid()).children(recursive=True)]
