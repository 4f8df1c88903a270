"""AdamW and Muon, as pure functions.

AdamW as in its paper (arXiv 1711.05101) with PyTorch's placement of epsilon (added to the root of the
bias-corrected second moment), so that runs compare. Muon (https://kellerjordan.github.io/posts/muon/)
for the matrices inside the blocks, scaled as in arXiv 2502.16982 so that AdamW's learning rate and
decay serve both.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from trainer_module.config import TrainConfig
from trainer_module.parameters import Parameter

Tensors = Mapping[str, tf.Tensor]

_MUON_RMS = 0.2
"""Root mean square of an orthogonalized update, as large as AdamW's usually are (arXiv 2502.16982)."""

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration that pushes every singular value towards 1 (Muon's author's)."""

_NEWTON_SCHULZ_ITERATIONS = 5


class Optimized(NamedTuple):
    """New values, by parameter name."""

    params: dict[str, tf.Tensor]
    first_moments: dict[str, tf.Tensor]
    """AdamW: running mean of gradients. Muon: momentum."""

    second_moments: dict[str, tf.Tensor]
    """AdamW: running mean of squared gradients. Muon's matrices have none."""


def takes_muon(config: TrainConfig, parameter: Parameter) -> bool:
    """Whether Muon updates the parameter: a matrix inside a block, and `optimizer: muon`."""
    return config.optimizer == "muon" and parameter.decays and parameter.name.startswith("blocks/")


def global_norm(gradients: Tensors) -> tf.Tensor:
    """Root of the sum of squares over every value of every gradient, float32."""
    # l2_loss is one pass where square and sum are two. Stacked and summed, since add_n's order is left to chance.
    halves = [tf.nn.l2_loss(tf.cast(value, tf.float32)) for value in gradients.values()]
    return tf.sqrt(2.0 * tf.reduce_sum(tf.stack(halves)))


def optimize(
    config: TrainConfig,
    table: Mapping[str, Parameter],
    rate: tf.Tensor,
    count: tf.Tensor,
    params: Tensors,
    gradients: Tensors,
    first_moments: Tensors,
    second_moments: Tensors,
) -> Optimized:
    """One update.

    Args:
      table: says which parameters decay, and their shapes.
      rate: float32 scalar: the learning rate.
      count: integer scalar: the number of this update, 1 for the first.
      params, gradients, first_moments, second_moments: by parameter name; gradients are of the mean loss, clipped.
    """
    count = tf.cast(count, tf.float32)
    first_correction = 1.0 - tf.pow(config.beta1, count)
    second_correction = 1.0 - tf.pow(config.beta2, count)
    new = Optimized({}, {}, {})
    for name, parameter in table.items():
        gradient, first = gradients[name], first_moments[name]
        if takes_muon(config, parameter):
            first = config.muon_momentum * first + (1.0 - config.muon_momentum) * gradient
            nesterov = config.muon_momentum * first + (1.0 - config.muon_momentum) * gradient
            direction = _muon_direction(parameter, nesterov)
        else:
            first = config.beta1 * first + (1.0 - config.beta1) * gradient
            second = config.beta2 * second_moments[name] + (1.0 - config.beta2) * tf.square(gradient)
            denominator = tf.sqrt(second / second_correction) + config.epsilon
            direction = (first / first_correction) / denominator
            new.second_moments[name] = second
        value = params[name]
        if parameter.decays:
            value *= 1.0 - rate * config.weight_decay
        new.params[name] = value - rate * direction
        new.first_moments[name] = first
    return new


def orthogonalize(matrix: tf.Tensor) -> tf.Tensor:
    """The nearest semi-orthogonal matrix, about: singular values come to lie between 0.7 and 1.2.

    Args:
      matrix: [rows, columns] float32.

    Returns:
      The same shape.
    """
    tall = matrix.shape[0] > matrix.shape[1]
    current = tf.transpose(matrix) if tall else matrix
    current /= tf.norm(current) + 1e-7
    a, b, c = _NEWTON_SCHULZ
    for _ in range(_NEWTON_SCHULZ_ITERATIONS):
        gram = tf.matmul(current, current, transpose_b=True)
        current = a * current + tf.matmul(b * gram + c * tf.matmul(gram, gram), current)
    return tf.transpose(current) if tall else current


def _muon_direction(parameter: Parameter, momentum: tf.Tensor) -> tf.Tensor:
    """Orthogonalized momentum in the parameter's shape; its root mean square is `_MUON_RMS`."""
    rows, columns = _as_matrix(parameter)
    scale = _MUON_RMS * math.sqrt(max(rows, columns))
    return tf.reshape(scale * orthogonalize(tf.reshape(momentum, [rows, columns])), parameter.shape)


def _as_matrix(parameter: Parameter) -> tuple[int, int]:
    """Rows and columns: the dimension `embed` against all others, in the order in which they are kept."""
    rows = parameter.shape[0] if parameter.axes[0] == "embed" else math.prod(parameter.shape[:-1])
    return rows, parameter.size // rows
