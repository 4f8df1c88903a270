"""Which of XLA and the plain graph, and of float32 and bfloat16, is faster on this machine: measured, and kept.

The two ways of compiling round differently, so the choice belongs to a training: it is made once,
kept beside the checkpoints, and a resume uses it on whatever machine it goes on.
"""

import hashlib
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from foundation import atomic
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.state import TrainState
from trainer_module.step import make_train_step

CHOICE_NAME = "compute_path.json"
"""Beside a training's checkpoints: its choice. In the folder above: the measurements of each machine."""

FEWEST_STEPS = 100
"""A shorter training takes the graph, whose compilation is the quicker, without measuring."""

_TIMED_STEPS = 5


def choose(model_config: ModelConfig, config: TrainConfig, folder: Path, rows: int) -> TrainConfig:
    """The configuration with `compile` and `precision` decided.

    Args:
      folder: of this training; a choice kept there is used again.
      rows: of a microbatch on one device.
    """
    if config.compile != "auto" and config.precision != "auto":
        return config
    path = folder / CHOICE_NAME
    if path.exists():
        choice = json.loads(path.read_text(encoding="utf-8"))
    else:
        choice = _choice(model_config, config, folder.parent / CHOICE_NAME, rows)
        atomic.write_text(path, json.dumps(choice, indent=2) + "\n")
    logging.info("step compiled by %(compile)s in %(precision)s: %(reason)s", choice)
    return config.model_copy(update={"compile": choice["compile"], "precision": choice["precision"]})


def candidates(config: TrainConfig) -> list[tuple[str, str]]:
    """(compile, precision) of each way that the configuration allows, the preferred first among equals."""
    ways = ["fused", "xla"] if config.compile == "auto" else [config.compile]
    precisions = ["float32", "bfloat16"] if config.precision == "auto" else [config.precision]
    return [(way, precision) for precision in precisions for way in ways]


def measure(model_config: ModelConfig, config: TrainConfig, ways: list[tuple[str, str]], rows: int) -> list[float]:
    """Median seconds of a step of one microbatch of `rows` rows, for each way; their steps take turns.

    Needs the memory of a training state, once more than the training itself, and gives it back.
    """
    probe = config.model_copy(update={"global_batch_size": rows, "num_microbatches": 1})
    random = np.random.default_rng(0)
    shape = (rows, model_config.seq_len + 1)
    token_ids = tf.constant(random.integers(0, model_config.vocab_size, shape), tf.int32)
    segment_ids = tf.ones(shape, tf.int32)
    decided = [probe.model_copy(update={"compile": way, "precision": precision}) for way, precision in ways]
    state = TrainState(model_config, decided[0])  # one for all: it is the same for either of float32 and bfloat16
    steps = [make_train_step(model_config, one, state) for one in decided]
    for step in steps:
        float(step(token_ids, segment_ids).loss)
    seconds: list[list[float]] = [[] for _ in steps]
    for _ in range(_TIMED_STEPS):
        for step, taken in zip(steps, seconds, strict=True):
            started = time.perf_counter()
            float(step(token_ids, segment_ids).loss)
            taken.append(time.perf_counter() - started)
    return [statistics.median(taken) for taken in seconds]


def _choice(model_config: ModelConfig, config: TrainConfig, kept: Path, rows: int) -> dict[str, Any]:
    ways = candidates(config)
    if len(ways) > 1 and config.steps < FEWEST_STEPS:
        way, precision = ("graph" if config.compile == "auto" else config.compile), ways[0][1]
        return {"compile": way, "precision": precision, "reason": f"fewer than {FEWEST_STEPS} steps: not measured"}
    key = _machine_and_shape(model_config, config, rows)
    measured = _load(kept)
    if key not in measured:
        seconds = measure(model_config, config, ways, rows)
        measured[key] = {
            "machine": _machine(),
            "seconds_per_microbatch": {
                f"{way} {precision}": s for (way, precision), s in zip(ways, seconds, strict=True)
            },
        }
        atomic.write_text(kept, json.dumps(measured, indent=2) + "\n")
    seconds_of = measured[key]["seconds_per_microbatch"]
    best = min(seconds_of, key=seconds_of.__getitem__)
    way, precision = best.split()
    reason = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in seconds_of.items())
    return {"compile": way, "precision": precision, "reason": f"measured a microbatch: {reason}"}


def _load(path: Path) -> dict[str, Any]:
    try:
        loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not there yet, or spoilt: it is only a memory of measurements
        return {}
    return loaded


def _machine_and_shape(model_config: ModelConfig, config: TrainConfig, rows: int) -> str:
    """A digest of what the speed depends on."""
    decisive = {
        "machine": _machine(),
        "model": model_config.model_dump(),
        "rows": rows,
        "ways": candidates(config),
        "gradient_checkpointing": (config.gradient_checkpointing, config.blocks_per_checkpoint),
        "optimizer": config.optimizer,
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]


def _machine() -> str:
    """Processor, number of cores, accelerators, TensorFlow."""
    accelerators = [device.name for device in tf.config.list_physical_devices() if device.device_type != "CPU"]
    return f"{_processor()}, {os.cpu_count()} cores, {accelerators or 'no accelerator'}, TensorFlow {tf.__version__}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "flags"))]
    # The flags, too: two machines of one name may differ in their vector units.
    return f"{names[0]} {hashlib.sha256(names[-1].encode()).hexdigest()[:8]}" if names else platform.machine()
