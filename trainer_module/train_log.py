"""The log of a training: one JSON object per line, and the same numbers as progress events.

`train_log.jsonl` has two kinds of lines. Steps: `step`, `loss` (nats per predicted token, mean since the
last line), `learning_rate`, `grad_norm` (before clipping), `tokens` (predicted since the start),
`tokens_per_s` (predicted tokens since the last line over wall time; validations, checkpoints and a
process's first step, which compiles, left out; null where nothing remains), `input_wait` (share of that
time spent waiting for rows), `seconds` (wall time since this process began to train), and for float16
`loss_scale` and `skipped_steps` (since the last line); `rows_digest` of all rows up to this step (`consumption`).
Validations: `step`, `validation_loss` (nats per
predicted token), `validation_tokens`.
"""

import json
import time
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging

from foundation.errors import TrainingError
from foundation.events import emit
from trainer_module.config import TrainConfig
from trainer_module.precision import SMALLEST_LOSS_SCALE
from trainer_module.step import StepResult

LOG_NAME = "train_log.jsonl"


class TrainLog:
    """Collects step results without waiting for them; reads them when a line is due."""

    def __init__(self, path: Path | None, first_step: int, config: TrainConfig):
        """Opens the log for appending.

        Args:
          path: of `train_log.jsonl`; lines of steps beyond `first_step`, left by a run that was stopped, are removed.
            None: nothing is written or shown, since another process does.
          first_step: updates made before this process began.
        """
        self._path = path
        self._config = config
        self._pending: list[StepResult] = []
        self._tokens = _keep_until(path, first_step) if path is not None else 0
        self._rows_digest = ""
        self._started = self._window_started = time.monotonic()
        self._pause_s = self._wait_s = 0.0
        self._is_first = True
        self._num_untimed = 0  # pending results whose time is not in the window

    def step(self, step: int, result: StepResult, input_wait_s: float, rows_digest: str) -> None:
        """Takes the result of update number `step`; writes a line every `log_every` steps and after the last.

        Args:
          input_wait_s: seconds that the step waited for its rows.
          rows_digest: of all rows up to this step.

        Raises:
          TrainingError: a gradient was not finite, and not for want of a smaller loss scale.
        """
        self._pending.append(result)
        self._rows_digest = rows_digest
        if self._is_first:  # it compiles, which says nothing of the speed
            self._is_first = False
            float(result.loss)
            self._window_started, self._pause_s, self._num_untimed = time.monotonic(), 0.0, 1
        else:
            self._wait_s += input_wait_s
        if step % self._config.log_every == 0 or step == self._config.steps:
            self.flush(step)

    def flush(self, step: int) -> None:
        """Writes a line of the steps since the last one, of which `step` is the newest, if there are any.

        Raises:
          TrainingError: as `step`.
        """
        if not self._pending:
            return
        results, self._pending = self._pending, []
        finite = [bool(tf.math.is_finite(result.grad_norm)) for result in results]
        tokens = [float(result.num_tokens) for result in results]
        self._tokens += int(sum(tokens))
        now = time.monotonic()
        window_s = max(now - self._window_started - self._pause_s, 1e-9)
        timed = tokens[self._num_untimed :]
        line = {
            "step": step,
            "loss": sum(float(result.loss) for result in results) / len(results),
            "learning_rate": float(results[-1].learning_rate),
            "grad_norm": float(results[-1].grad_norm),
            "tokens": self._tokens,
            "tokens_per_s": sum(timed) / window_s if timed else None,
            "input_wait": min(1.0, self._wait_s / window_s) if timed else None,
            "seconds": now - self._started,
            "rows_digest": self._rows_digest,
        }
        if self._config.precision == "float16":
            line |= {"loss_scale": float(results[-1].loss_scale), "skipped_steps": finite.count(False)}
        self._write(line)
        eta_s = (self._config.steps - step) * window_s / len(timed) if timed else None
        self._show(
            "training_step",
            step=step,
            total_steps=self._config.steps,
            loss=line["loss"],
            learning_rate=line["learning_rate"],
            grad_norm=line["grad_norm"],
            tokens_per_s=line["tokens_per_s"],
            eta_s=eta_s,
            tokens_seen=self._tokens,
        )
        self._window_started, self._pause_s, self._wait_s, self._num_untimed = time.monotonic(), 0.0, 0.0, 0
        first = step - len(results) + 1
        for number, (result, is_finite) in enumerate(zip(results, finite, strict=True), start=first):
            if not is_finite:
                self._judge_overflow(number, result)

    def _judge_overflow(self, step: int, result: StepResult) -> None:
        """Says that a step was skipped, or that training has gone wrong."""
        scale = float(result.loss_scale)
        if self._config.precision == "float16" and scale > SMALLEST_LOSS_SCALE:
            logging.warning("step %d: gradient overflow at loss scale %g; the update is skipped", step, scale)
            return
        raise TrainingError(
            f"step {step}: the gradient is not finite (loss {float(result.loss)}); its update was not made; lower "
            "train.learning_rate, lengthen train.warmup_steps or set train.clip_norm"
        )

    def validation(self, step: int, loss: float, tokens: int, seconds: float) -> None:
        """Writes a validation's line; its time does not count into the speed of training."""
        self._pause_s += seconds
        self._write({"step": step, "validation_loss": loss, "validation_tokens": tokens})
        self._show("validation", step=step, loss=loss, bits_per_byte=None)

    def pause(self, seconds: float) -> None:
        """Takes time that was not spent on training out of the speed."""
        self._pause_s += seconds

    def _show(self, kind: str, **fields: Any) -> None:
        if self._path is not None:
            emit(kind, **fields)

    def _write(self, line: dict[str, Any]) -> None:
        if self._path is None:
            return
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
