"""A worker that measures, started by the local launcher: `python -m benchmarks.multi_worker.worker JOB`.

The chief leaves `RUN_DIR/measured.json`: `step_s`, seconds of each timed step; `all_reduce_s`, seconds of each
all-reduce of tensors like the gradients, alone; `checkpoint_s`, seconds for which each asynchronous checkpoint
blocked, and `checkpoint_whole_s`, until it was on the disk.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from trainer_module import worker

_UNTIMED = 2


def _run(job: dict[str, Any]) -> None:
    import tensorflow as tf

    from trainer_module import heartbeat
    from trainer_module.checkpoint_writer import CheckpointWriter
    from trainer_module.config import DistributionConfig, ModelConfig, TrainConfig
    from trainer_module.consumption import SAID_SIZE
    from trainer_module.replicas import make_replicas
    from trainer_module.state import TrainState
    from trainer_module.step import make_train_step, share_of

    settings = job["custom_config"]
    heartbeat.move(heartbeat.JOINING)
    replicas = make_replicas(DistributionConfig.model_validate(settings["distribution"]))
    replicas.barrier()
    heartbeat.move(heartbeat.FORMED)
    model, train = ModelConfig.model_validate(settings["model"]), TrainConfig.model_validate(settings["train"])
    state = TrainState(model, train)
    step = make_train_step(model, train, state, replicas)
    share = share_of(train, replicas)
    token_ids = tf.random.stateless_uniform(
        [share.num_rows, model.seq_len + 1], [0, replicas.rank], 4, model.vocab_size, dtype=tf.int32
    )
    segment_ids = tf.ones_like(token_ids)
    gradients = [tf.ones_like(variable) for variable in state.params.values()]

    @tf.function(autograph=False)
    def all_reduce() -> tf.Tensor:
        summed, _ = replicas.sums(lambda _: gradients, tf.zeros([SAID_SIZE]))
        return tf.add_n([value[..., :1][0] if value.shape.rank else value for value in map(tf.reduce_sum, summed)])

    def timed(action: Any) -> list[float]:
        seconds = []
        for number in range(_UNTIMED + settings["repeats"]):
            replicas.barrier()
            started = time.perf_counter()
            action()
            if number >= _UNTIMED:
                seconds.append(time.perf_counter() - started)
        return seconds

    measured: dict[str, list[float]] = {
        "step_s": timed(lambda: float(step(token_ids, segment_ids).loss)),
        "all_reduce_s": timed(lambda: float(all_reduce())),
    }
    if replicas.is_chief:
        blocked, whole = [], []
        for number in range(3):
            with CheckpointWriter(Path(settings["checkpoint_root"]), train, "benchmark") as writer:
                started = time.perf_counter()
                writer.save(number, state.variables(), {}, None)
                blocked.append(time.perf_counter() - started)
                writer.wait()
                whole.append(time.perf_counter() - started)
        measured |= {"checkpoint_s": blocked, "checkpoint_whole_s": whole}
        Path(job["model_run_dir"], "measured.json").write_text(json.dumps(measured), encoding="utf-8")
    replicas.barrier()


if __name__ == "__main__":
    worker._run = _run
    code = worker.main()
    sys.stdout.flush()
    os._exit(code)
