"""The log of a training: one JSON object per line, and the same numbers as progress events.

`train_log.jsonl` has two kinds of lines. Steps: `step`, `loss` (nats per predicted token, mean since the
last line), `learning_rate`, `grad_norm` (before clipping), `tokens` (predicted since the start),
`tokens_per_s` (predicted tokens since the last line over wall time, validations and checkpoints left
out), `seconds` (wall time since this process began to train). Validations: `step`, `validation_loss`
(nats per predicted token), `validation_tokens`.
"""

import json
import math
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from foundation.errors import TrainingError
from foundation.events import emit
from trainer_module.step import StepResult

LOG_NAME = "train_log.jsonl"


class TrainLog:
    """Collects step results without waiting for them; reads them when a line is due."""

    def __init__(self, path: Path, first_step: int, total_steps: int, log_every: int):
        """Opens the log for appending.

        Args:
          path: of `train_log.jsonl`; lines of steps beyond `first_step`, left by a run that was stopped, are removed.
          first_step: updates made before this process began.
        """
        self._path = path
        self._total_steps = total_steps
        self._log_every = log_every
        self._pending: list[StepResult] = []
        self._tokens = _keep_until(path, first_step)
        self._started = self._window_started = time.monotonic()
        self._pause_s = 0.0

    def step(self, step: int, result: StepResult) -> None:
        """Takes the result of update number `step`; writes a line every `log_every` steps and after the last.

        Raises:
          TrainingError: the loss is no longer a finite number.
        """
        self._pending.append(result)
        if step % self._log_every and step != self._total_steps:
            return
        loss = float(tf.reduce_mean([pending.loss for pending in self._pending]))
        tokens = int(tf.reduce_sum([pending.num_tokens for pending in self._pending]))
        now = time.monotonic()
        window_s = max(now - self._window_started - self._pause_s, 1e-9)
        self._tokens += tokens
        line = {
            "step": step,
            "loss": loss,
            "learning_rate": float(result.learning_rate),
            "grad_norm": float(result.grad_norm),
            "tokens": self._tokens,
            "tokens_per_s": tokens / window_s,
            "seconds": now - self._started,
        }
        self._write(line)
        eta_s = (self._total_steps - step) * window_s / len(self._pending)
        emit(
            "training_step",
            step=step,
            total_steps=self._total_steps,
            loss=loss,
            learning_rate=line["learning_rate"],
            grad_norm=line["grad_norm"],
            tokens_per_s=line["tokens_per_s"],
            eta_s=eta_s,
            tokens_seen=self._tokens,
        )
        self._pending = []
        self._window_started, self._pause_s = time.monotonic(), 0.0
        if not math.isfinite(loss):
            raise TrainingError(
                f"step {step}: the loss is {loss} (mean since step {step - self._log_every}); lower "
                "train.learning_rate, lengthen train.warmup_steps or set train.clip_norm"
            )

    def validation(self, step: int, loss: float, tokens: int, seconds: float) -> None:
        """Writes a validation's line; its time does not count into the speed of training."""
        self._pause_s += seconds
        self._write({"step": step, "validation_loss": loss, "validation_tokens": tokens})
        emit("validation", step=step, loss=loss, bits_per_byte=None)

    def pause(self, seconds: float) -> None:
        """Takes time that was not spent on training out of the speed."""
        self._pause_s += seconds

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_train_log(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a log; a last line that was cut off while being written is left out."""
    lines = Path(path).read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _keep_until(path: Path, last_step: int) -> int:
    """Drops lines after `last_step`; gives the tokens predicted until then."""
    if not path.exists():
        return 0
    kept = [line for line in read_train_log(path) if line["step"] <= last_step]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    return max((line.get("tokens", 0) for line in kept), default=0)
