"""A worker that only trains, and, as the chief, leaves its variables in `FOLDER/trained.npz`: no model is exported.

Its job is that of `trainer_module.worker`. `custom_config` may ask for trouble: `late_rank` and `late_s`, a worker
that starts so much later; `absent_rank`, one that never does; `nan_rank` and `nan_step`, a gradient that is not
finite in one worker.
"""

import os
import sys
import time
from pathlib import Path

from trainer_module import worker


def _run(job):
    import json

    settings = job["custom_config"]
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"] if "TF_CONFIG" in os.environ else 0
    if settings.get("late_rank") == rank:
        time.sleep(settings["late_s"])
    if settings.get("absent_rank") == rank:
        time.sleep(1000)

    import numpy as np

    from trainer_module import heartbeat, training
    from trainer_module.config import DistributionConfig, ModelConfig, TrainConfig
    from trainer_module.replicas import make_replicas

    heartbeat.move(heartbeat.JOINING)
    replicas = make_replicas(DistributionConfig.model_validate(settings["distribution"]))
    replicas.barrier()
    heartbeat.move(heartbeat.FORMED)
    if settings.get("nan_rank") == rank:
        _spoil(settings["nan_step"])
    (train_rows,), (eval_rows,) = job["train_files"], job["eval_files"]
    trained = training.train(
        ModelConfig.model_validate(settings["model"]),
        TrainConfig.model_validate(settings["train"]),
        Path(train_rows),
        Path(eval_rows),
        Path(settings["checkpoint_root"]),
        settings["code_hash"],
        replicas,
        settings.get("stop_after"),
    )
    if replicas.is_chief:
        values = {name: variable.numpy() for name, variable in trained.state.variables().items()}
        np.savez(Path(job["model_run_dir"]) / "trained.npz", loss=trained.validation_loss, **values)
    replicas.barrier()


def _spoil(step):
    """Makes the gradients of one step infinite here: by a scale, as an overflow would."""
    from trainer_module import step as step_module

    original = step_module.accumulate

    def spoilt(config, train, params, token_ids, segment_ids, factor=1.0, dropout_seed=None, **more):
        import tensorflow as tf

        sums = original(config, train, params, token_ids, segment_ids, factor, dropout_seed, **more)
        bad = tf.where(spoilt.step.value() == step - 1, float("inf"), 0.0)
        return sums._replace(gradients={name: value + bad for name, value in sums.gradients.items()})

    from trainer_module.state import TrainState

    make = TrainState.__init__

    def remembered(self, *arguments):
        make(self, *arguments)
        spoilt.step = self.step

    TrainState.__init__ = remembered
    step_module.accumulate = spoilt


if __name__ == "__main__":
    worker._run = _run
    code = worker.main()
    sys.stdout.flush()
    os._exit(code)
