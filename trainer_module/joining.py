"""How the processes of a training come to hold the same one: the chief opens it, and tells the others.

Only the chief writes in the training's folder. The others learn from it which training this is, how the
step is compiled and from which checkpoint to go on, read that, and prove that they hold the same state.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from absl import logging

from foundation.errors import TrainingError
from foundation.events import emit
from trainer_module import checkpoint, compute_path, identity, warm_start
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.progress import Progress
from trainer_module.replicas import Replicas
from trainer_module.state import TrainState, Variables
from trainer_module.step import share_of


class Joined(NamedTuple):
    """A training that is open in every process."""

    folder: Path
    """Of its checkpoints and log."""

    fingerprint: str
    config: TrainConfig
    """With `compile` and `precision` as they were chosen."""

    state: TrainState
    step: int
    """The last one that is done."""

    progress: Progress


@contextlib.contextmanager
def joined(
    model_config: ModelConfig,
    config: TrainConfig,
    train_rows: Path,
    checkpoint_root: Path,
    code_hash: str,
    replicas: Replicas,
    baseline: Path | None = None,
) -> Iterator[Joined]:
    """Opens a training for the time of the block.

    Args:
      As `trainer_module.training.train`.

    Raises:
      TrainingError: it may not begin (`identity.open_folder`), another process is at work on it, or this process
        does not hold the chief's state.
    """
    with contextlib.ExitStack() as resources:
        told = None
        if replicas.is_chief:
            values = identity.decisive_values(model_config, config, train_rows, code_hash)
            values |= warm_start.decisive_values(baseline)
            folder, fingerprint = identity.open_folder(checkpoint_root, values, config.abandon_unfinished)
            resources.enter_context(identity.held(folder))
            checkpoint.remove_unfinished(folder)
            chosen = compute_path.choose(model_config, config, folder, share_of(config, replicas).rows_per_microbatch)
            newest = checkpoint.newest_valid(folder)
            told = {
                "folder": folder.name,
                "fingerprint": fingerprint,
                "compile": chosen.compile,
                "precision": chosen.precision,
                "checkpoint": newest.name if newest else None,
            }
        told = replicas.broadcast(told)
        config = config.model_copy(update={"compile": told["compile"], "precision": told["precision"]})
        folder = checkpoint_root / told["folder"]
        state = TrainState(model_config, config)
        step, progress = 0, Progress()
        if told["checkpoint"] is not None:
            step, progress = _restore(folder / told["checkpoint"], state, told["fingerprint"], replicas)
        else:
            warm_start.take_weights(state, model_config, train_rows, baseline)
        _check_same_state(state.variables(), config, train_rows, replicas)
        yield Joined(folder, told["fingerprint"], config, state, step, progress)


def _restore(path: Path, state: TrainState, fingerprint: str, replicas: Replicas) -> tuple[int, Progress]:
    fault = None if replicas.is_chief else checkpoint.verify(path)  # the chief has just verified it
    if fault:
        raise TrainingError(
            f"{path}: worker {replicas.rank} cannot read the checkpoint that the chief goes on from ({fault}); all "
            "workers need the same folder of checkpoints: give them shared storage"
        )
    restored = checkpoint.restore(path, state.variables(), fingerprint)
    if replicas.is_chief:
        logging.info("training goes on after step %d of %s", restored.step, path.parent)
        emit("note", text=f"training goes on after step {restored.step}")
    return restored.step, Progress(**restored.progress)


def _check_same_state(variables: Variables, config: TrainConfig, train_rows: Path, replicas: Replicas) -> None:
    """Raises TrainingError in a process whose settings, rows or variables are not the chief's."""
    if replicas.num_workers == 1:
        return
    weights = hashlib.sha256()
    for name, variable in sorted(variables.items()):
        weights.update(name.encode())
        weights.update(variable.numpy().tobytes())
    own = {
        "settings": hashlib.sha256(config.model_dump_json().encode()).hexdigest(),
        "rows": identity.hash_of_rows(train_rows),
        "variables": weights.hexdigest(),
    }
    theirs = replicas.broadcast(own)
    different = [name for name in own if own[name] != theirs[name]]
    if different:
        raise TrainingError(
            f"worker {replicas.rank} does not hold the chief's {' and '.join(different)}; give all workers the same "
            "configuration, code, rows and TensorFlow"
        )
