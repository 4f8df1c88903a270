"""What many workers cost: `python -m benchmarks.multi_worker`.

One process with both cores against two workers with one core each, on the same global batch; the two take
turns, round after round, in fresh processes. Then the all-reduce's share of the step, the time for which an
asynchronous checkpoint blocks the step, and, by a real kill, the time from a worker's death to the first
new step (processes start anew and import TensorFlow).
"""

import argparse
import hashlib
import io
import json
import statistics
import tempfile
from pathlib import Path

from benchmarks.input import write_rows
from components.distributed_trainer.launcher import Job
from components.distributed_trainer.local_launcher import LocalLauncher
from components.distributed_trainer.resume_check import check_resume
from trainer_module.config import DistributionConfig, ModelConfig, TrainConfig

MODELS = {
    "A": (ModelConfig(vocab_size=8192), 16),
    "B": (ModelConfig(vocab_size=16384, width=768, num_heads=12, num_layers=2, seq_len=512), 4),
}
"""Model and global batch, as in `benchmarks.train_step`."""

ONE = DistributionConfig(launcher="local")
TWO = DistributionConfig(strategy="multi_worker", num_workers=2)
_CHECKPOINT_EVERY_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=8, help="timed steps in a round")
    options = parser.parse_args()
    for name, (model, rows) in MODELS.items():
        train = TrainConfig(steps=1000, global_batch_size=rows, compile="fused")
        _compare(name, model, train, options.rounds, options.repeats)
    model, rows = MODELS["A"]
    _kill(model, TrainConfig(steps=1000, global_batch_size=rows, compile="fused", log_every=1, checkpoint_every=3))


def _compare(name: str, model: ModelConfig, train: TrainConfig, rounds: int, repeats: int) -> None:
    one, two = [], []
    for _ in range(rounds):
        one.append(_measure(model, train, ONE, repeats))
        two.append(_measure(model, train, TWO, repeats))
    step_one, step_two = ([statistics.median(run["step_s"]) for run in runs] for runs in (one, two))
    ratios = [first / second for first, second in zip(step_one, step_two, strict=True)]
    shares = [statistics.median(run["all_reduce_s"]) / step for run, step in zip(two, step_two, strict=True)]
    blocked = [seconds for run in one for seconds in run["checkpoint_s"]]
    whole = [seconds for run in one for seconds in run["checkpoint_whole_s"]]
    print(f"{name}: {rounds} rounds, median (least to most)")
    print(f"  1 process, 2 cores: step {_spread(step_one, 's')}")
    print(f"  2 workers, 1 core each: step {_spread(step_two, 's')}; speed {_spread(ratios, 'x')}")
    print(f"  all-reduce: {_spread([100 * share for share in shares], '% of the step')}")
    print(
        f"  checkpoint: blocks for {_spread([1000 * seconds for seconds in blocked], 'ms')}, on the disk after "
        f"{_spread(whole, 's')}; once a minute that is {100 * statistics.median(blocked) / _CHECKPOINT_EVERY_S:.2f}%"
    )


def _measure(
    model: ModelConfig, train: TrainConfig, distribution: DistributionConfig, repeats: int
) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory(prefix="tokenmill-benchmark-") as folder:
        settings = {
            "model": model.model_dump(),
            "train": train.model_dump(),
            "distribution": distribution.model_dump(),
            "checkpoint_root": str(Path(folder) / "checkpoints"),
            "repeats": repeats,
        }
        job = Job([], [], folder, folder, settings)
        LocalLauncher(distribution, "benchmarks.multi_worker.worker", io.StringIO()).run(job)
        measured: dict[str, list[float]] = json.loads((Path(folder) / "measured.json").read_text(encoding="utf-8"))
    return measured


def _kill(model: ModelConfig, train: TrainConfig) -> None:
    with tempfile.TemporaryDirectory(prefix="tokenmill-benchmark-") as name:
        folder = Path(name)
        tokenizer = folder / "tokenizer"
        tokenizer.write_bytes(b"never used: training stops before the export")
        digest = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
        rows = [
            str(write_rows(folder / split, 2000, model.seq_len, model.vocab_size, digest))
            for split in ("train", "eval")
        ]
        settings = {
            "model": model.model_dump(),
            "train": train.model_dump(),
            "code_hash": "",
            "tokenizer": str(tokenizer),
        }
        job = Job([rows[0]], [rows[1]], name, name, settings)
        check = check_resume(job, TWO, 6, 12, folder / "check", lambda text: None, io.StringIO())
    print(f"2 workers, A: from the kill to the first new step {check.seconds_to_first_step:.1f} s; same: {check.same}")


def _spread(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):.3g} {unit} ({min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    main()
