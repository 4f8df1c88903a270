"""`run_fn`: what TFX calls to train. The only file here that knows TFX, and only the shape of its arguments."""

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from absl import logging

from foundation.errors import TrainingError
from foundation.rows import PackingManifest
from trainer_module import export, heartbeat
from trainer_module.config import DistributionConfig, ModelConfig, TrainConfig
from trainer_module.parameters import count_parameters
from trainer_module.reference import write_reference
from trainer_module.replicas import make_replicas
from trainer_module.train_log import LOG_NAME
from trainer_module.training import Trained, train

if TYPE_CHECKING:
    from tfx.components.trainer.fn_args_utils import FnArgs


def run_fn(fn_args: "FnArgs") -> None:
    """Trains on packed rows and exports the model.

    Args:
      fn_args: `train_files`, `eval_files`: one folder of packed rows each; `serving_model_dir`: where the
        SavedModel goes; `model_run_dir`: where the training log and `reference.npz` go; `custom_config`: `model` and
        `train` (sections of the configuration as dictionaries), `tokenizer` (path of the serialized SentencePiece
        model), `checkpoint_root`, `code_hash`; `distribution` (a section), without which one device trains;
        `stop_after`, a step, if training is to stop there; `baseline`, a SavedModel, if it begins with those weights.

    Raises:
      TrainingError: the tokenizer is not the one that made the rows; or as `trainer_module.training.train`.
    """
    settings = fn_args.custom_config
    heartbeat.move(heartbeat.JOINING)
    replicas = make_replicas(DistributionConfig.model_validate(settings.get("distribution", {})))
    replicas.barrier()
    heartbeat.move(heartbeat.FORMED)
    model_config = ModelConfig.model_validate(settings["model"])
    config = TrainConfig.model_validate(settings["train"])
    (train_rows,), (eval_rows,) = (map(Path, files) for files in (fn_args.train_files, fn_args.eval_files))
    tokenizer_model = Path(settings["tokenizer"]).read_bytes()
    expected, actual = PackingManifest.load(train_rows).tokenizer_sha256, hashlib.sha256(tokenizer_model).hexdigest()
    if actual != expected:
        raise TrainingError(
            f"{settings['tokenizer']}: not the tokenizer that made the rows in {train_rows} (SHA-256 {actual}, theirs "
            f"{expected}); run the pipeline again from Transform"
        )
    logging.info(
        "worker %d of %d, %d replicas in all: training %d parameters for %d steps",
        replicas.rank,
        replicas.num_workers,
        replicas.count,
        count_parameters(model_config),
        config.steps,
    )

    checkpoint_root = Path(settings["checkpoint_root"])
    trained = train(
        model_config,
        config,
        train_rows,
        eval_rows,
        checkpoint_root,
        settings["code_hash"],
        replicas,
        settings.get("stop_after"),
        Path(settings["baseline"]) if settings.get("baseline") else None,
    )
    heartbeat.move(heartbeat.EXPORTING, trained.step)
    if replicas.is_chief:
        _write_outputs(fn_args, model_config, trained, tokenizer_model, eval_rows)
    replicas.barrier()  # a process that leaves early looks like one that has died
    heartbeat.move(heartbeat.ENDED, trained.step)


def _write_outputs(
    fn_args: "FnArgs", model_config: ModelConfig, trained: Trained, tokenizer_model: bytes, eval_rows: Path
) -> None:
    params = {name: variable.value() for name, variable in trained.state.result().items()}
    run_folder = Path(fn_args.model_run_dir)
    run_folder.mkdir(parents=True, exist_ok=True)
    write_reference(run_folder, model_config, params, eval_rows)
    export.export(
        fn_args.serving_model_dir,
        model_config,
        params,
        tokenizer_model,
        facts={
            "train": trained.config.model_dump(),
            "step": trained.step,
            "num_parameters": count_parameters(model_config),
            "validation_loss": trained.validation_loss,
            "tokenizer_sha256": hashlib.sha256(tokenizer_model).hexdigest(),
            "training_fingerprint": trained.fingerprint,
        },
    )
    shutil.copyfile(trained.log_path, run_folder / LOG_NAME)
