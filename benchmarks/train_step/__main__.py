"""Training speed, ours beside others': `python -m benchmarks.train_step`.

The same GPT-2-shaped model (pre-norm LayerNorm, learned positions, GELU, biases, tied head), the same
batch, AdamW with clipping, in every framework. Each contestant is a process of its own that compiles,
then waits; they take turns at a few steps each, alone on the machine, round after round, so that a busy
spell hits all alike. Printed: tokens per second (median and spread over rounds), CPU seconds per step,
the ratio to the first contestant round by round, and the share of the fastest matrix product measured by
any contestant in the same run.

PyTorch and KerasHub run in environments of their own; make each once with

    python -m benchmarks.train_step --make-env torch .torch-env
    python -m benchmarks.train_step --make-env kerashub .kerashub-env

and pass `--torch .torch-env/bin/python --kerashub .kerashub-env/bin/python`. PyTorch's MKL takes a slow
path on processors that are not Intel's; `--shim` builds a library that has it take the fast one (needs
`cc`), and measures both.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, int]] = {
    "A": {"width": 256, "num_layers": 4, "seq_len": 256, "batch": 16, "vocab_size": 8192, "num_heads": 4},
    "B": {"width": 768, "num_layers": 2, "seq_len": 512, "batch": 4, "vocab_size": 16384, "num_heads": 12},
}

OURS = [f"ours-{way}-{precision}" for precision in ("float32", "bfloat16") for way in ("fused", "xla", "graph")]
TORCH = [f"torch-{way}-{precision}" for precision in ("float32", "bfloat16") for way in ("eager", "compile")]

_SHIM = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"
_FOLDER = Path(__file__).resolve().parent


class Contestant:
    """A process that trains when it is told to."""

    def __init__(self, name: str, shape: dict[str, int], torch: str | None, kerashub: str | None, shim: Path | None):
        self.name = name
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
        if shim is not None:
            environment["LD_PRELOAD"] = str(shim)
        family = name.split("-")[0]
        if family == "torch":
            command = [str(torch), str(_FOLDER / "torch_contestant.py")]
        elif family == "kerashub":
            command = [str(kerashub), "-m", "benchmarks.train_step.keras_contestant"]
        else:
            command = [sys.executable, "-m", f"benchmarks.train_step.{family}_contestant"]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in `end`, with the process
        self._process = subprocess.Popen(
            [*command, name.removesuffix("+shim"), json.dumps(shape)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )

    def ask(self, request: str) -> dict[str, float]:
        """Sends a line; waits for the answer.

        Raises:
          RuntimeError: the process has ended; with the end of what it wrote.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                answer: dict[str, float] = json.loads(line)
                return answer
        self._errors.seek(0)
        raise RuntimeError(f"{self.name} ended: {self._errors.read()[-2000:]}")

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def flops_per_token(shape: dict[str, int]) -> float:
    """Operations of forward and backward: 6 for a weight of a product, and half of attention's square."""
    width, layers = shape["width"], shape["num_layers"]
    weights = layers * 12 * width**2 + shape["vocab_size"] * width
    return 6 * weights + 6 * layers * shape["seq_len"] * width


def measure(
    names: list[str],
    shape: dict[str, int],
    rounds: int,
    steps: int,
    torch: str | None,
    kerashub: str | None,
    shim: Path | None,
) -> dict[str, list[dict[str, float]]]:
    """Answers of every contestant, round by round; those that cannot start are named and left out."""
    contestants: list[Contestant] = []
    try:
        for name in names:
            contestant = Contestant(name, shape, torch, kerashub, shim if name.endswith("+shim") else None)
            try:
                contestant.ask("warm-up")
                contestants.append(contestant)
            except RuntimeError as error:
                contestant.end()
                print(f"left out: {error}", file=sys.stderr)
        answers: dict[str, list[dict[str, float]]] = {contestant.name: [] for contestant in contestants}
        for _ in range(rounds):
            for contestant in contestants:
                answers[contestant.name].append(contestant.ask(str(steps)))
        return answers
    finally:
        for contestant in contestants:
            contestant.end()


def report(letter: str, shape: dict[str, int], answers: dict[str, list[dict[str, float]]], steps: int) -> None:
    """Prints one table."""
    tokens = shape["batch"] * shape["seq_len"] * steps
    peaks = {
        dtype: max(answer[f"peak_{dtype}"] for rounds in answers.values() for answer in rounds)
        for dtype in ("float32", "bfloat16")
    }
    print(f"\n{letter}: {shape}")
    print(f"fastest matrix product: {peaks['float32']:.0f} GFLOP/s float32, {peaks['bfloat16']:.0f} bfloat16")
    columns = f"{'tokens/s':>9}  {'least to most':<17}{'CPU s/step':>11}{'of first':>10}  {'spread':<13}{'of peak':>8}"
    print(f"{'':<28}{columns}")
    first: list[float] | None = None
    for name, rounds in answers.items():
        rates = [tokens / answer["wall_s"] for answer in rounds]
        first = first or rates
        ratios = [rate / other for rate, other in zip(rates, first, strict=True)]
        peak = peaks["bfloat16" if "bfloat16" in name else "float32"]
        share = statistics.median(rates) * flops_per_token(shape) / 1e9 / peak
        print(
            f"{name:<28}{statistics.median(rates):>9.0f}  {f'{min(rates):.0f} to {max(rates):.0f}':<17}"
            f"{statistics.median(answer['cpu_s'] for answer in rounds) / steps:>11.2f}"
            f"{statistics.median(ratios):>9.2f}x  {f'{min(ratios):.2f} to {max(ratios):.2f}':<13}{share:>8.0%}"
            f"   loss {rounds[-1]['loss']:.3f}"
        )


def build_shim(folder: Path) -> Path:
    """Compiles the library that has MKL take its fast path."""
    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text(_SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def make_environment(package: str, folder: str) -> None:
    """An environment of its own for PyTorch or KerasHub; some gigabytes."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    requirements = str(_FOLDER / f"{package}-requirements.txt")
    subprocess.run([f"{folder}/bin/python", "-m", "pip", "install", "-q", "-r", requirements], check=True)


def main(arguments: list[str] | None = None) -> Any:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make-env", nargs=2, metavar=("torch|kerashub", "FOLDER"))
    parser.add_argument("--kerashub", help="python of an environment that has KerasHub")
    parser.add_argument("--torch", help="python of an environment that has PyTorch")
    parser.add_argument("--shim", action="store_true", help="measure PyTorch with MKL's fast path, too")
    parser.add_argument("--shapes", default="A,B")
    parser.add_argument("--only", help="contestants, separated by commas; the first is what others are compared with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="steps of a turn")
    options = parser.parse_args(arguments)
    if options.make_env:
        return make_environment(*options.make_env)
    names = (
        options.only.split(",")
        if options.only
        else OURS + (TORCH if options.torch else []) + ["keras-fit"] + (["kerashub-fit"] if options.kerashub else [])
    )
    with tempfile.TemporaryDirectory() as folder:
        shim = build_shim(Path(folder)) if options.shim else None
        if shim:
            names += [f"{name}+shim" for name in names if name.startswith("torch")]
        for letter in options.shapes.split(","):
            answers = measure(
                names, SHAPES[letter], options.rounds, options.steps, options.torch, options.kerashub, shim
            )
            report(letter, SHAPES[letter], answers, options.steps)
    return None


if __name__ == "__main__":
    main()
