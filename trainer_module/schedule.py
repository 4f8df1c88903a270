"""The learning rate as a function of the step alone."""

import math

import tensorflow as tf

from trainer_module.config import TrainConfig


def learning_rate(config: TrainConfig, step: tf.Tensor) -> tf.Tensor:
    """Learning rate of the update that makes step `step` (counted from 1) of a run.

    Linear from 0 to the peak during warm-up. Then, down to the final fraction at the last step: half a cosine
    (arXiv 1608.03983); a straight line; or for wsd the peak until the last `decay_share` of all steps and a
    straight line from there (arXiv 2404.06395). A constant schedule stays at the peak.

    Args:
      step: integer scalar, 1 or more.

    Returns:
      float32 scalar.
    """
    step = tf.cast(step, tf.float32)
    rise = step / max(config.warmup_steps, 1)
    decay_start = config.warmup_steps
    if config.schedule == "wsd":
        decay_start = max(config.warmup_steps, config.steps - max(1, round(config.decay_share * config.steps)))
    progress = tf.clip_by_value((step - decay_start) / max(config.steps - decay_start, 1), 0.0, 1.0)
    if config.schedule == "constant":
        remaining = tf.ones_like(progress)
    elif config.schedule == "cosine":
        remaining = 0.5 * (1.0 + tf.cos(math.pi * progress))
    else:
        remaining = 1.0 - progress
    fall = config.final_learning_rate + (1.0 - config.final_learning_rate) * remaining
    return config.learning_rate * tf.where(step < config.warmup_steps, rise, fall)
