"""The training loop: rows in, trained weights out; stopped at any moment, it goes on from its last checkpoint.

Every process of a training runs it, in step: what may end it is decided by what all processes said in the
step's all-reduce, so all come to the same end at the same step. The chief alone writes.
"""

import contextlib
import dataclasses
import time
from pathlib import Path

import tensorflow as tf
from absl import logging

from foundation.errors import PreemptedError, TrainingError
from foundation.events import emit
from trainer_module import checkpoint, heartbeat, identity, rows_dataset, rows_stream
from trainer_module.checkpoint_writer import CheckpointWriter
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.consumption import Said, said_of
from trainer_module.joining import Joined, joined
from trainer_module.preemption import stop_requests
from trainer_module.replicas import ONE, Replicas
from trainer_module.state import TrainState
from trainer_module.step import Share, StepResult, TrainStep, make_eval_step, make_train_step, share_of
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
    replicas: Replicas = ONE,
    stop_after: int | None = None,
    baseline: Path | None = None,
) -> Trained:
    """Trains, or goes on with the training of the same settings and data that was stopped.

    Args:
      train_rows, eval_rows: folders of packed rows.
      checkpoint_root: each distinct training keeps its checkpoints and log in a folder of its own in it; the same for
        all processes.
      code_hash: of the code that trains; with another, a training that has ended is not taken for this one.
      replicas: that train together.
      stop_after: a step after which training stops as if it were asked to.
      baseline: an exported model with whose weights it begins (`warm_start`).

    Raises:
      TrainingError: the rows do not fit the model; a gradient is not finite; a training with other settings was
        stopped and waits to go on; another process is at work on this one.
      PreemptedError: it was asked to stop, and has saved.
      CorpusError: a folder holds no packed rows, or a row is damaged.
      HostError: a checkpoint cannot be written.
    """
    training = rows_dataset.RowReader(train_rows, in_memory=config.input == "memory")
    evaluation = rows_dataset.RowReader(eval_rows)
    for reader in (training, evaluation):
        _check_fit(model_config, reader)
        reader.verify()
    with joined(model_config, config, train_rows, checkpoint_root, code_hash, replicas, baseline) as training_of_all:
        return _run(model_config, training_of_all, training, evaluation, replicas, stop_after)


def _run(
    model_config: ModelConfig,
    joined: Joined,
    training: rows_dataset.RowReader,
    evaluation: rows_dataset.RowReader,
    replicas: Replicas,
    stop_after: int | None,
) -> Trained:
    folder, fingerprint, config, state, step, progress = joined
    share = share_of(config, replicas)
    log = TrainLog(folder / LOG_NAME if replicas.is_chief else None, step, config)
    train_step = make_train_step(model_config, config, state, replicas)
    validate = _Validation(model_config, config, state, evaluation, replicas)
    batches = _batches(training, config, step, share)
    ending = progress.reason_to_end(config, step)
    validation_loss: float | None = None
    asked = False
    clock = time.monotonic() - progress.seconds
    heartbeat.move(heartbeat.TRAINING, step)

    with contextlib.ExitStack() as resources:
        if replicas.is_chief:
            resources.enter_context(identity.closed_on_divergence(folder))
        writer = resources.enter_context(CheckpointWriter(folder, config, fingerprint, replicas.is_chief))
        is_asked = resources.enter_context(stop_requests())
        rows = iter(batches)
        while ending is None and not asked:
            started = time.monotonic()
            batch = next(rows)
            waited = time.monotonic() - started
            step += 1
            seconds = started - clock if replicas.is_chief else 0.0
            result, heard = _step(train_step, batch, share, is_asked(), seconds, replicas)
            progress = progress.after_step(heard)
            log.step(step, result, waited, progress.rows_digest)
            heartbeat.move(heartbeat.TRAINING, step)
            ending = progress.reason_to_end(config, step)
            asked = ending is None and (heard.stop_requests > 0 or step == stop_after)
            is_best = False
            if ending is not None or (step % config.eval_every == 0 and not asked):
                log.flush(step)
                started = time.monotonic()
                validation_loss, num_validated = validate()
                log.validation(step, validation_loss, num_validated, time.monotonic() - started)
                progress = progress.after_validation(step, validation_loss)
                is_best = progress.best_step == step
                ending = ending or progress.reason_to_end(config, step)
            is_due = ending is not None or asked or step % config.checkpoint_every == 0
            if is_due or (is_best and config.keep_best):
                log.flush(step)  # whose error is better than a checkpoint of a training that has gone wrong
                started = time.monotonic()
                kept = progress.best_step if config.keep_best else None
                writer.save(step, state.variables(), dataclasses.asdict(progress), kept)
                log.pause(time.monotonic() - started)

    if asked:
        replicas.barrier()  # nobody leaves before the chief has saved
        raise PreemptedError(f"training was asked to stop and has saved step {step}; run again to go on from there")
    if replicas.is_chief:
        logging.info("training ends after step %d: %s", step, ending)
        emit("note", text=f"training ends after step {step}: {ending}")
        identity.mark_finished(folder)
    replicas.barrier()  # the last checkpoint is on the disk
    if config.keep_best and progress.best_step is not None and progress.best_step != step:
        step = checkpoint.restore_best(folder, progress.best_step, state.variables(), fingerprint)
        validation_loss = progress.best_loss
    if validation_loss is None:  # nothing was left to do
        validation_loss, _ = validate()
    return Trained(state, step, validation_loss, folder / LOG_NAME, fingerprint, config)


def _step(
    train_step: TrainStep, batch: rows_dataset.Batch, share: Share, asked: bool, seconds: float, replicas: Replicas
) -> tuple[StepResult, Said]:
    """A step, and what all processes said with it.

    One process knows what it says: it need not wait for the device.
    """
    token_ids, segment_ids = batch
    said = said_of(token_ids.numpy(), segment_ids.numpy(), share.first_place, share.filled_rows, asked, seconds)
    result, summed = train_step.and_tell(token_ids, segment_ids, said.encode())
    return result, said if replicas.num_workers == 1 else Said.decode(summed)


def _batches(reader: rows_dataset.RowReader, config: TrainConfig, done: int, share: Share) -> tf.data.Dataset:
    """This process's share of the batches after step `done`."""
    places = None
    if share.num_rows != config.global_batch_size:
        places = slice(share.first_place, share.first_place + share.num_rows)
    if config.input == "stream":
        return rows_stream.training_batches(
            reader, done, config.steps, config.global_batch_size, config.seed, config.shuffle_buffer_rows, places
        )
    return rows_dataset.training_batches(reader, done, config.steps, config.global_batch_size, config.seed, places)


class _Validation:
    """Mean loss over a fixed set of rows that training never sees; each process takes some of its batches."""

    def __init__(
        self,
        model_config: ModelConfig,
        config: TrainConfig,
        state: TrainState,
        reader: rows_dataset.RowReader,
        replicas: Replicas,
    ):
        rows = min(share_of(config, replicas).rows_per_microbatch, config.eval_rows)
        self._replicas = replicas
        self._step = make_eval_step(model_config, config, state, rows)
        batches = rows_dataset.evaluation_batches(reader, config.eval_rows, rows)
        self._batches = batches.shard(replicas.num_workers, replicas.rank)

    def __call__(self) -> tuple[float, int]:
        """Loss in nats per predicted token, and the number of those."""
        loss, count = 0.0, 0.0
        for token_ids, segment_ids in self._batches:
            batch_loss, batch_count = self._step(token_ids, segment_ids)
            loss, count = loss + float(batch_loss), count + float(batch_count)
        loss, count = self._replicas.total([loss, count])
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
