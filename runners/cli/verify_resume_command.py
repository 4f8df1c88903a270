"""`tokenmill verify-resume`: kills a worker of the user's own training, and shows that nothing came of it."""

import datetime
import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from foundation.errors import ConfigError, TrainingError
from runners.cli.options import Config, Overrides
from runners.cli.quiet import quiet_stderr


def verify_resume(
    config: Config,
    kill_at: Annotated[int, typer.Option("--kill-at", min=1, metavar="STEP", help="Step after which to kill.")] = 10,
    steps: Annotated[
        int | None, typer.Option(min=2, help="Steps to train and compare; 5 after the kill if not given.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Prove that the training of a configuration survives a killed worker.

    Trains twice on the rows of the last run: undisturbed, and with a random worker killed by SIGKILL. Weights,
    moments, losses, learning rates and rows must be the same, bit for bit. Checkpoints go to a temporary folder.
    """
    from pipeline.config import load_config

    loaded = load_config(config, overrides)
    last_step = steps or kill_at + 5
    if not kill_at < last_step <= loaded.train.steps:
        raise ConfigError(
            f"--kill-at {kill_at} must be below --steps {last_step}, which must be at most train.steps "
            f"{loaded.train.steps}"
        )
    console = Console(highlight=False)
    with quiet_stderr():
        from components.distributed_trainer.launcher import Job
        from components.distributed_trainer.resume_check import check_resume
        from runners.local.last_outputs import find_last_training

        training = find_last_training(loaded)
    every = min(loaded.train.checkpoint_every, max(1, kill_at // 2))
    watched = loaded.train.model_copy(update={"log_every": 1, "checkpoint_every": every})
    log_path = loaded.log_folder / f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}-verify-resume.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    console.print(f"log: {log_path}", markup=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="tokenmill-verify-") as folder, log_path.open("w") as log:
        job = Job(
            [str(training.split_folder("train"))],
            [str(training.split_folder("eval"))],
            str(Path(folder) / "model"),
            folder,
            {
                "model": loaded.model.model_dump(),
                "train": watched.model_dump(),
                "tokenizer": str(training.tokenizer),
                "code_hash": "",
            },
        )

        def note(text: str) -> None:
            console.print(text, markup=False, soft_wrap=True)

        with quiet_stderr():  # TensorFlow's first words
            result = check_resume(job, loaded.distribution, kill_at, last_step, Path(folder), note, log)
    origin = f"the checkpoint of step {result.resumed_from}" if result.resumed_from else "the start"
    console.print(
        f"killed worker {result.killed_rank} after step {result.killed_at}; all went on from {origin}, "
        f"{result.seconds_to_first_step:.1f} s later with their first step"
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("compared", "number", f"after step {last_step}"):
        table.add_column(heading, justify="right" if heading == "number" else "left")
    for part in result.parts:
        table.add_row(part.name, f"{part.number:,}", f"differ: {part.difference}" if part.difference else "identical")
    console.print(table)
    if not result.same:
        raise TrainingError("the training that was killed differs from the one that was not; please report this")
    console.print("The training that was killed is, bit for bit, the one that was not.")
