"""Mixed precision: which values are narrow, and float16's loss scale.

Weights, moments, norms, softmax and loss are float32 always; activations and matrix products have the
compute dtype. float16 has too few exponents for gradients, so theirs are multiplied by a power of two
and divided again before the update (arXiv 1710.03740): the scale doubles after a number of finite
steps, and halves when a gradient overflows, whose step is skipped.
"""

import math
from collections.abc import Mapping

import tensorflow as tf

from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.parameters import Parameter

LARGEST_LOSS_SCALE = 2.0**24
SMALLEST_LOSS_SCALE = 1.0


class LossScale:
    """float16's scale and the finite steps since it last changed."""

    def __init__(self, train: TrainConfig):
        self.scale = tf.Variable(train.initial_loss_scale, dtype=tf.float32, trainable=False, name="loss_scale")
        self.finite_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="finite_steps")

    def variables(self) -> dict[str, tf.Variable]:
        """By the name that each has in a checkpoint."""
        return {"loss_scale": self.scale, "finite_steps": self.finite_steps}


def compute_dtype(train: TrainConfig) -> tf.DType:
    """Of activations and matrix products."""
    return tf.dtypes.as_dtype(train.precision)


def cast_matrices(
    table: Mapping[str, Parameter], params: Mapping[str, tf.Tensor], dtype: tf.DType
) -> dict[str, tf.Tensor]:
    """The parameters with the blocks' matrices in the compute dtype: once a step, not once a microbatch.

    Norms and biases stay float32, as do embedding and head, whose gradients have several parts to add.
    """
    narrow = {name for name, parameter in table.items() if parameter.decays and name.startswith("blocks/")}
    return {name: tf.cast(value, dtype) if name in narrow else value for name, value in params.items()}


def gradient_factor(train: TrainConfig, config: ModelConfig, loss_scale: LossScale | None) -> tf.Tensor | float:
    """What a step's gradients are multiplied by on their way: 1 but for float16.

    The loss is a sum over tokens. Taken over the power of two next to their number it is about a mean, for
    which the usual loss scales are meant; powers of two are exact.
    """
    if loss_scale is None:
        return 1.0
    tokens = train.global_batch_size * config.seq_len
    return loss_scale.scale * 2.0 ** -math.floor(math.log2(tokens))


def current_scale(loss_scale: LossScale | None) -> tf.Tensor:
    """float32 scalar; 1 without a loss scale."""
    return tf.constant(1.0) if loss_scale is None else loss_scale.scale.read_value()


def adapt_loss_scale(train: TrainConfig, loss_scale: LossScale | None, finite: tf.Tensor) -> None:
    """Grows or halves the scale after a step whose gradient was `finite` or not."""
    if loss_scale is None:
        return
    scale, finite_steps = loss_scale.scale.read_value(), loss_scale.finite_steps.read_value() + 1
    grows = finite_steps >= train.loss_scale_growth_steps
    grown = tf.where(grows, tf.minimum(scale * 2.0, LARGEST_LOSS_SCALE), scale)
    loss_scale.scale.assign(tf.where(finite, grown, tf.maximum(scale / 2.0, SMALLEST_LOSS_SCALE)))
    restart = tf.logical_or(grows, tf.logical_not(finite))
    loss_scale.finite_steps.assign(tf.where(restart, tf.zeros_like(finite_steps), finite_steps))
