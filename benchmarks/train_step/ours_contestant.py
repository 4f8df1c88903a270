"""Our own step: `ours-xla-float32`, `ours-graph-bfloat16`, ..."""

import json
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks.train_step import turns
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.state import TrainState
from trainer_module.step import make_train_step


def product(dtype: str) -> Callable[[], Any]:
    """A square matrix product of TensorFlow's own."""
    left = tf.cast(tf.random.normal([turns.PEAK_SIZE, turns.PEAK_SIZE]), dtype)

    @tf.function
    def multiply() -> tf.Tensor:
        return tf.reduce_sum(tf.matmul(left + left[0, 0], left)[:1, :1])

    return lambda: multiply().numpy()


def main(name: str, shape: dict[str, int]) -> None:
    """Trains in turns."""
    _, way, precision, *rest = name.split("-")
    batch = shape.pop("batch")
    kind = {"norm": "layernorm", "position": "learned", "mlp": "gelu", "use_bias": True, "tie_embeddings": True}
    model = ModelConfig.model_validate({**shape, **kind})
    train = TrainConfig.model_validate(
        {
            "steps": 1_000_000,
            "warmup_steps": 0,
            "global_batch_size": batch,
            "precision": precision,
            "compile": way,
            "schedule": "constant",
            "learning_rate": turns.LEARNING_RATE,
            "weight_decay": turns.WEIGHT_DECAY,
            "beta1": turns.BETAS[0],
            "beta2": turns.BETAS[1],
            "epsilon": turns.EPSILON,
            "clip_norm": turns.CLIP_NORM,
            "gradient_checkpointing": rest[0] if rest else "none",
        }
    )
    token_ids = tf.constant(turns.batch_of({**shape, "batch": batch}))
    segment_ids = tf.ones_like(token_ids)
    step = make_train_step(model, train, TrainState(model, train))
    turns.take_turns(turns.one_by_one(lambda: float(step(token_ids, segment_ids).loss)), product)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
