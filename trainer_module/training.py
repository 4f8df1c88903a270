"""The training loop: rows in, trained weights out; stopped at any moment, it goes on from its last checkpoint."""

import dataclasses
import time
from pathlib import Path

import tensorflow as tf
from absl import logging

from foundation.errors import TrainingError
from foundation.events import emit
from trainer_module import checkpoint, compute_path, identity, rows_dataset, rows_stream
from trainer_module.checkpoint_writer import CheckpointWriter
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.loss import count_targets
from trainer_module.progress import Progress
from trainer_module.state import TrainState
from trainer_module.step import make_eval_step, make_train_step
from trainer_module.train_log import LOG_NAME, TrainLog


@dataclasses.dataclass(frozen=True)
class Trained:
    """The end of a training."""

    state: TrainState
    step: int
    """Whose weights these are: the last, or with `keep_best` that of the best validation."""

    validation_loss: float
    """Nats per predicted token over the first `eval_rows` rows of the eval split."""

    log_path: Path
    fingerprint: str
    config: TrainConfig
    """With `compile` and `precision` as they were chosen."""


def train(
    model_config: ModelConfig,
    config: TrainConfig,
    train_rows: Path,
    eval_rows: Path,
    checkpoint_root: Path,
    code_hash: str = "",
) -> Trained:
    """Trains, or goes on with the training of the same settings and data that was stopped.

    Args:
      train_rows, eval_rows: folders of packed rows.
      checkpoint_root: each distinct training keeps its checkpoints and log in a folder of its own in it.
      code_hash: of the code that trains; with another, a training that has ended is not taken for this one.

    Raises:
      TrainingError: the rows do not fit the model; a gradient is not finite; a training with other settings was
        stopped and waits to go on.
      CorpusError: a folder holds no packed rows, or a row is damaged.
      HostError: a checkpoint cannot be written.
    """
    training = rows_dataset.RowReader(train_rows, in_memory=config.input == "memory")
    evaluation = rows_dataset.RowReader(eval_rows)
    for reader in (training, evaluation):
        _check_fit(model_config, reader)
        reader.verify()
    values = identity.decisive_values(model_config, config, train_rows, code_hash)
    folder, fingerprint = identity.open_folder(checkpoint_root, values, config.abandon_unfinished)
    checkpoint.remove_unfinished(folder)
    config = compute_path.choose(model_config, config, folder)

    state = TrainState(model_config, config)
    step, progress = _resume(folder, state, fingerprint)
    log = TrainLog(folder / LOG_NAME, step, config)
    train_step = make_train_step(model_config, config, state)
    validate = _Validation(model_config, config, state, evaluation)
    batches = _batches(training, config, step)
    ending = progress.reason_to_end(config, step)
    validation_loss: float | None = None

    with identity.closed_on_divergence(folder), CheckpointWriter(folder, config, fingerprint) as writer:
        rows = iter(batches)
        while ending is None:
            started = time.monotonic()
            token_ids, segment_ids = next(rows)
            waited = time.monotonic() - started
            step += 1
            log.step(step, train_step(token_ids, segment_ids), waited)
            progress = progress.after_step(count_targets(segment_ids.numpy()), time.monotonic() - started)
            ending = progress.reason_to_end(config, step)
            is_best = False
            if ending is not None or step % config.eval_every == 0:
                log.flush(step)
                started = time.monotonic()
                validation_loss, num_validated = validate()
                log.validation(step, validation_loss, num_validated, time.monotonic() - started)
                progress = progress.after_validation(step, validation_loss)
                is_best = progress.best_step == step
                ending = ending or progress.reason_to_end(config, step)
            if ending is not None or step % config.checkpoint_every == 0 or (is_best and config.keep_best):
                log.flush(step)  # whose error is better than a checkpoint of a training that has gone wrong
                started = time.monotonic()
                kept = progress.best_step if config.keep_best else None
                writer.save(step, state.variables(), dataclasses.asdict(progress), kept)
                log.pause(time.monotonic() - started)

    logging.info("training ends after step %d: %s", step, ending)
    emit("note", text=f"training ends after step {step}: {ending}")
    identity.mark_finished(folder)
    if config.keep_best and progress.best_step is not None and progress.best_step != step:
        step = checkpoint.restore_best(folder, progress.best_step, state.variables(), fingerprint)
        validation_loss = progress.best_loss
    if validation_loss is None:  # nothing was left to do
        validation_loss, _ = validate()
    return Trained(state, step, validation_loss, folder / LOG_NAME, fingerprint, config)


def _batches(reader: rows_dataset.RowReader, config: TrainConfig, done: int) -> tf.data.Dataset:
    """The batches after step `done`."""
    if config.input == "stream":
        return rows_stream.training_batches(
            reader, done, config.steps, config.global_batch_size, config.seed, config.shuffle_buffer_rows
        )
    return rows_dataset.training_batches(reader, done, config.steps, config.global_batch_size, config.seed)


def _resume(folder: Path, state: TrainState, fingerprint: str) -> tuple[int, Progress]:
    restored = checkpoint.restore_newest(folder, state.variables(), fingerprint)
    if restored is None:
        return 0, Progress()
    logging.info("training goes on after step %d of %s", restored.step, folder)
    emit("note", text=f"training goes on after step {restored.step}")
    return restored.step, Progress(**restored.progress)


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
