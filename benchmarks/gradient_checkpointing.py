"""What gradient checkpointing saves and costs: `python -m benchmarks.gradient_checkpointing`.

For each policy and sequence length, in a process of its own: peak of the resident memory above what the
process holds before its first step (so compilation is in it), the temporaries that XLA's own plan has (where
XLA compiles the whole), and the time of a step. Then, for each policy, the longest sequence whose peak stays
below that of the shortest without checkpointing. Time is compared at the shortest length, in turns.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

POLICIES = ("none", "attention", "full")
LENGTHS = (256, 512, 768)
SHAPE = {"vocab_size": 4096, "num_layers": 8, "width": 256, "num_heads": 4}
BATCH = 8
_MIB = 1 << 20


def worker(way: str, policy: str, seq_len: int, steps: int) -> None:
    """Trains a few steps and prints memory and times; then a step's time for each line on standard input."""
    import numpy as np
    import tensorflow as tf

    from trainer_module.config import ModelConfig, TrainConfig
    from trainer_module.state import TrainState
    from trainer_module.step import make_train_step

    model = ModelConfig.model_validate({**SHAPE, "seq_len": seq_len})
    train = TrainConfig.model_validate(
        {"steps": 1000, "global_batch_size": BATCH, "compile": way, "gradient_checkpointing": policy}
    )
    shape = (BATCH, seq_len + 1)
    token_ids = tf.constant(np.random.default_rng(0).integers(4, 4096, shape), tf.int32)
    segment_ids = tf.ones(shape, tf.int32)
    step = make_train_step(model, train, TrainState(model, train))
    # What is freed stays with the process, so the only honest zero is before the first step, compilation included.
    before = _status("VmRSS")
    for _ in range(1 + steps):
        float(step(token_ids, segment_ids).loss)
    print(json.dumps({"peak_mib": (_status("VmHWM") - before) / _MIB}), flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        float(step(token_ids, segment_ids).loss)
        print(json.dumps({"seconds": time.perf_counter() - started}), flush=True)


def _status(name: str) -> int:
    """Bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


class Process:
    """A worker."""

    def __init__(self, way: str, policy: str, seq_len: int, steps: int):
        self._dump = tempfile.TemporaryDirectory()
        flags = f"--xla_dump_to={self._dump.name} --xla_dump_hlo_as_text" if way == "xla" else ""
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.gradient_checkpointing",
                "--worker",
                way,
                policy,
                str(seq_len),
                str(steps),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "XLA_FLAGS": flags, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        self.peak_mib = self._read("peak_mib")

    def _read(self, key: str) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return float("nan")  # it could not be done, for want of memory say
        return float(json.loads(line)[key])

    def seconds(self) -> float:
        """Of one step."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read("seconds")

    def planned_mib(self) -> float:
        """Largest temporary allocation of any program that XLA compiled; 0 where it compiled none."""
        sizes = [0]
        for path in Path(self._dump.name).glob("*buffer-assignment.txt"):
            sizes += [int(size) for size in re.findall(r"size (\d+), preallocated-temp", path.read_text())]
        return max(sizes) / _MIB

    def end(self) -> None:
        """Ends the worker."""
        self._process.kill()
        self._process.communicate()
        self._dump.cleanup()


def report(way: str, rounds: int, steps: int) -> None:
    """Prints the tables of one way of compiling."""
    print(f"\n{way}: {SHAPE}, batch {BATCH}")
    print(f"{'policy':<12}" + "".join(f"{f'T {length}':>22}" for length in LENGTHS))
    peaks: dict[str, list[float]] = {}
    for policy in POLICIES:
        cells = []
        for length in LENGTHS:
            process = Process(way, policy, length, steps)
            peaks.setdefault(policy, []).append(process.peak_mib)
            planned = f", planned {process.planned_mib():.0f}" if way == "xla" else ""
            cells.append(f"{process.peak_mib:.0f} MiB{planned}")
            process.end()
        print(f"{policy:<12}" + "".join(f"{cell:>22}" for cell in cells), flush=True)
    cap = peaks["none"][0]
    for policy in POLICIES[1:]:
        fitting = [length for length, peak in zip(LENGTHS, peaks[policy], strict=True) if peak <= cap]
        longest = max(fitting, default=0)
        print(f"{policy}: the longest within {cap:.0f} MiB is T {longest}, {longest / LENGTHS[0]:.1f}x")
    processes = {policy: Process(way, policy, LENGTHS[0], 1) for policy in POLICIES}
    seconds: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    for _ in range(rounds):
        for policy, process in processes.items():
            seconds[policy].append(process.seconds())
    for policy, process in processes.items():
        process.end()
        ratios = [taken / other for taken, other in zip(seconds[policy], seconds["none"], strict=True)]
        print(
            f"{policy:<12}{statistics.median(seconds[policy]):.2f} s a step, {statistics.median(ratios):.2f}x of none "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", default="fused,graph,xla")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=2, help="over which the peak is taken")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        way, policy, seq_len, steps = options.worker
        worker(way, policy, int(seq_len), int(steps))
        return
    for way in options.ways.split(","):
        report(way, options.rounds, options.steps)


if __name__ == "__main__":
    main()
