"""A worker that only trains: no model is exported.

Its job is that of `trainer_module.worker`. Every worker leaves a digest of its weights in `weights-RANK.txt`, the
chief its variables in `trained.npz` and the number of collectives of a step in `collectives.txt`. `custom_config`
may ask for trouble: `pause_s` after every step; `late_rank` and `late_s`, a worker that starts so much later;
`absent_rank`, one that never does; `error_rank` and `error_step`, an error of
one worker; `bad_rank` and `bad_step`, a gradient that is not finite in one worker;
`forgets`, optimizer moments that are lost in a resume.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

from trainer_module import worker


def _run(job):
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
    if settings.get("bad_rank") == rank:
        _spoil_gradients(settings["bad_step"])
    _after_steps(settings.get("pause_s", 0), settings["error_step"] if settings.get("error_rank") == rank else None)
    if settings.get("forgets"):
        _forget_moments()
    steps = _remember_train_step()
    (train_rows,), (eval_rows,) = job["train_files"], job["eval_files"]
    out = Path(job["model_run_dir"])
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
    values = {name: variable.numpy() for name, variable in trained.state.variables().items()}
    digest = hashlib.sha256(b"".join(values[name].tobytes() for name in sorted(values))).hexdigest()
    (out / f"weights-{rank}.txt").write_text(digest)
    if replicas.is_chief:
        np.savez(out / "trained.npz", loss=trained.validation_loss, **values)
        (out / "collectives.txt").write_text(str(_count_collectives(steps[0])))
    replicas.barrier()


def _after_steps(pause_s, error_step):
    from trainer_module.train_log import TrainLog

    original = TrainLog.step

    def step(self, number, *arguments):
        original(self, number, *arguments)
        time.sleep(pause_s)
        if number == error_step:
            raise RuntimeError("out of paper")

    TrainLog.step = step


def _forget_moments():
    from trainer_module import joining

    original = joining._restore

    def restore(path, state, *arguments):
        restored = original(path, state, *arguments)
        for variable in state.first_moments.values():
            variable.assign(variable * 0.0)
        return restored

    joining._restore = restore


def _remember_train_step():
    from trainer_module import training

    made, original = [], training.make_train_step

    def make(*arguments):
        made.append(original(*arguments))
        return made[-1]

    training.make_train_step = make
    return made


def _count_collectives(train_step):
    """Of one step, those inside its loops counted once for each place in the graph: outside of loops, and inside."""
    graph = train_step.function.get_concrete_function().graph.as_graph_def()
    outside = sum(node.op.startswith("CollectiveReduce") for node in graph.node)
    inside = sum(
        node.op.startswith("CollectiveReduce") for function in graph.library.function for node in function.node_def
    )
    return [outside, inside]


def _spoil_gradients(step):
    """Makes the gradients of one step infinite in this worker."""
    import tensorflow as tf

    from trainer_module import step as step_module
    from trainer_module.state import TrainState

    accumulate, make, states = step_module.accumulate, TrainState.__init__, []

    def remembered(self, *arguments):
        make(self, *arguments)
        states.append(self)

    def spoilt(*arguments, **more):
        sums = accumulate(*arguments, **more)
        bad = tf.where(tf.equal(states[-1].step.read_value(), step - 1), float("inf"), 0.0)
        return sums._replace(gradients={name: value + bad for name, value in sums.gradients.items()})

    TrainState.__init__ = remembered
    step_module.accumulate = spoilt


if __name__ == "__main__":
    worker._run = _run
    code = worker.main()
    sys.stdout.flush()
    os._exit(code)
