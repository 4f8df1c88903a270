"""AdamW and the learning rate, as pure functions.

AdamW as in its paper (arXiv 1711.05101) with PyTorch's placement of epsilon (added to the root of the
bias-corrected second moment), so that runs compare.
"""

import math
from collections.abc import Mapping

import tensorflow as tf

from trainer_module.config import TrainConfig
from trainer_module.parameters import Parameter

Tensors = Mapping[str, tf.Tensor]


def learning_rate(config: TrainConfig, step: tf.Tensor) -> tf.Tensor:
    """Learning rate of the update that makes step `step` (counted from 1) of a run.

    Linear from 0 to the peak during warm-up, then half a cosine down to its final fraction at the last step.

    Args:
      step: integer scalar, 1 or more.

    Returns:
      float32 scalar.
    """
    step = tf.cast(step, tf.float32)
    rise = step / max(config.warmup_steps, 1)
    progress = (step - config.warmup_steps) / max(config.steps - config.warmup_steps, 1)
    cosine = 0.5 * (1.0 + tf.cos(math.pi * tf.clip_by_value(progress, 0.0, 1.0)))
    fall = config.final_learning_rate + (1.0 - config.final_learning_rate) * cosine
    return config.learning_rate * tf.where(step < config.warmup_steps, rise, fall)


def global_norm(gradients: Tensors) -> tf.Tensor:
    """Root of the sum of squares over every value of every gradient, float32."""
    return tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(tf.cast(value, tf.float32))) for value in gradients.values()]))


def adamw(
    config: TrainConfig,
    table: Mapping[str, Parameter],
    step: tf.Tensor,
    params: Tensors,
    gradients: Tensors,
    first_moments: Tensors,
    second_moments: Tensors,
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """One update.

    Args:
      table: says which parameters decay.
      step: integer scalar: the number of this update, 1 for the first.
      params, gradients, first_moments, second_moments: by parameter name; gradients are of the mean loss, clipped.

    Returns:
      New params, first moments, second moments.
    """
    rate = learning_rate(config, step)
    count = tf.cast(step, tf.float32)
    first_correction = 1.0 - tf.pow(config.beta1, count)
    second_correction = 1.0 - tf.pow(config.beta2, count)
    new_params, new_first, new_second = {}, {}, {}
    for name, parameter in table.items():
        gradient = gradients[name]
        first = config.beta1 * first_moments[name] + (1.0 - config.beta1) * gradient
        second = config.beta2 * second_moments[name] + (1.0 - config.beta2) * tf.square(gradient)
        denominator = tf.sqrt(second / second_correction) + config.epsilon
        value = params[name]
        if parameter.decays:
            value *= 1.0 - rate * config.weight_decay
        new_params[name] = value - rate * (first / first_correction) / denominator
        new_first[name], new_second[name] = first, second
    return new_params, new_first, new_second
