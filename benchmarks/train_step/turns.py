"""The contestants' side of the benchmark: answer each line on standard input with one turn's measurements.

Plain Python and NumPy: it is imported in PyTorch's environment, too.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.1
BETAS = (0.9, 0.95)
EPSILON = 1e-8
CLIP_NORM = 1.0
PEAK_SIZE = 1024
"""Rows and columns of the matrices whose product is taken for the machine's peak."""


def batch_of(shape: dict[str, int]) -> np.ndarray:
    """[batch, seq_len + 1] int32 of random tokens; one document a row."""
    random = np.random.default_rng(0)
    return random.integers(4, shape["vocab_size"], (shape["batch"], shape["seq_len"] + 1)).astype(np.int32)


def take_turns(steps_of: Callable[[int], float], product: Callable[[str], Callable[[], Any]]) -> None:
    """Answers until standard input ends.

    Args:
      steps_of: makes a number of training steps and gives the loss of the last.
      product: of a dtype's name, a function that multiplies two square matrices of `PEAK_SIZE` and waits for it.
    """
    products = {dtype: product(dtype) for dtype in ("float32", "bfloat16")}
    for line in sys.stdin:
        steps = 2 if line.strip() == "warm-up" else int(line)
        answer = {f"peak_{dtype}": _peak(multiply) for dtype, multiply in products.items()}
        steps_of(1)  # the first after a pause pays for what others have thrown out of the caches
        wall, cpu = time.perf_counter(), time.process_time()
        loss = steps_of(steps)
        answer |= {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "loss": float(loss)}
        print(json.dumps(answer), flush=True)


def one_by_one(step: Callable[[], float]) -> Callable[[int], float]:
    """`steps_of` for a loop over single steps."""

    def steps_of(count: int) -> float:
        for _ in range(count - 1):
            step()
        return step()

    return steps_of


def _peak(multiply: Callable[[], Any]) -> float:
    """Billions of operations per second, the best of ten."""
    multiply()
    best = float("inf")
    for _ in range(10):
        started = time.perf_counter()
        multiply()
        best = min(best, time.perf_counter() - started)
    return 2 * PEAK_SIZE**3 / best / 1e9
