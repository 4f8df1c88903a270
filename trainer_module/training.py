"""The training loop: rows in, trained weights out; stopped at any moment, it goes on from its last checkpoint."""

import dataclasses
import hashlib
import json
import time
from pathlib import Path

from absl import logging

from foundation.errors import TrainingError
from foundation.rows import MANIFEST_NAME
from trainer_module import checkpoint, rows_dataset
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.step import TrainState, make_eval_step, make_train_step
from trainer_module.train_log import LOG_NAME, TrainLog

# Settings that change how a training is watched and kept, but not one bit of its result.
_WITHOUT_EFFECT = {"log_every", "eval_every", "eval_rows", "checkpoint_every", "keep_checkpoints"}


@dataclasses.dataclass(frozen=True)
class Trained:
    """The end of a training."""

    state: TrainState
    validation_loss: float
    """Nats per predicted token over the first `eval_rows` rows of the eval split."""

    log_path: Path
    fingerprint: str


def train(
    model_config: ModelConfig, config: TrainConfig, train_rows: Path, eval_rows: Path, checkpoint_root: Path
) -> Trained:
    """Trains, or goes on with the training of the same settings and data that was stopped.

    Args:
      train_rows, eval_rows: folders of packed rows.
      checkpoint_root: each distinct training keeps its checkpoints and log in a folder of its own in it.

    Raises:
      TrainingError: the rows do not fit the model; the loss is not finite.
      CorpusError: a folder holds no packed rows.
    """
    training = rows_dataset.RowReader(train_rows)
    evaluation = rows_dataset.RowReader(eval_rows)
    for reader in (training, evaluation):
        _check_fit(model_config, reader)
    fingerprint = _fingerprint(model_config, config, train_rows)
    folder = checkpoint_root / fingerprint
    folder.mkdir(parents=True, exist_ok=True)

    state = TrainState(model_config, config.seed)
    done = checkpoint.restore_newest(folder, state.variables(), fingerprint) or 0
    if done:
        logging.info("training goes on after step %d of %s", done, folder)
    log = TrainLog(folder / LOG_NAME, done, config.steps, config.log_every)
    train_step = make_train_step(model_config, config, state)
    validate = _Validation(model_config, config, state, evaluation)
    validation_loss = None

    batches = rows_dataset.training_batches(training, done, config.steps, config.global_batch_size, config.seed)
    for step, (token_ids, segment_ids) in enumerate(batches, start=done + 1):
        log.step(step, train_step(token_ids, segment_ids))
        if step % config.eval_every == 0 or step == config.steps:
            started = time.monotonic()
            validation_loss, tokens = validate()
            log.validation(step, validation_loss, tokens, time.monotonic() - started)
        if step % config.checkpoint_every == 0 or step == config.steps:
            started = time.monotonic()
            checkpoint.save(folder, step, state.variables(), fingerprint, config.keep_checkpoints)
            log.pause(time.monotonic() - started)

    if validation_loss is None:  # nothing was left to do
        validation_loss, _ = validate()
    return Trained(state, validation_loss, folder / LOG_NAME, fingerprint)


class _Validation:
    """Mean loss over a fixed set of rows that training never sees."""

    def __init__(
        self, model_config: ModelConfig, config: TrainConfig, state: TrainState, reader: rows_dataset.RowReader
    ):
        rows = min(config.global_batch_size // config.num_microbatches, config.eval_rows)
        self._step = make_eval_step(model_config, config, state, rows)
        self._batches = rows_dataset.evaluation_batches(reader, config.eval_rows, rows)

    def __call__(self) -> tuple[float, int]:
        """Loss in nats per predicted token, and the number of those."""
        loss, count = 0.0, 0.0
        for token_ids, segment_ids in self._batches:
            batch_loss, batch_count = self._step(token_ids, segment_ids)
            loss, count = loss + float(batch_loss), count + float(batch_count)
        return loss / max(count, 1.0), int(count)


def _check_fit(config: ModelConfig, reader: rows_dataset.RowReader) -> None:
    manifest = reader.manifest
    if manifest.row_format.seq_len != config.seq_len:
        raise TrainingError(
            f"{reader.folder}: rows of {manifest.row_format.seq_len} tokens do not fit model.seq_len {config.seq_len}; "
            "pack the rows again with this configuration"
        )
    if manifest.vocab_size != config.vocab_size:
        raise TrainingError(
            f"{reader.folder}: rows of a vocabulary of {manifest.vocab_size} pieces do not fit model.vocab_size "
            f"{config.vocab_size}; run Transform and SequencePacker again with this configuration"
        )


def _fingerprint(model_config: ModelConfig, config: TrainConfig, train_rows: Path) -> str:
    """Of everything that decides the weights: 16 hex digits."""
    decisive = {
        "model": model_config.model_dump(),
        "train": config.model_dump(exclude=_WITHOUT_EFFECT),
        "rows": hashlib.sha256((train_rows / MANIFEST_NAME).read_bytes()).hexdigest(),
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]
