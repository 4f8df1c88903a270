"""Reshapes that cost nothing where sizes are known.

A size that is not known while a graph is built is a computation in it, at every step of a loop; generation,
whose steps are small, would spend a third of its operations on them.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def sizes_of(tensor: tf.Tensor) -> list[Any]:
    """Each dimension: a number where it is known, else a scalar tensor."""
    static = tensor.shape.as_list()
    if None not in static:
        return static
    dynamic = tf.shape(tensor)
    return [dynamic[axis] if size is None else size for axis, size in enumerate(static)]


def reshape(tensor: tf.Tensor, sizes: Sequence[Any]) -> tf.Tensor:
    """`tf.reshape`; where one size alone is not known, it is left to be inferred."""
    unknown = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
    if len(unknown) == 1:
        sizes = [-1 if axis == unknown[0] else size for axis, size in enumerate(sizes)]
    return tf.reshape(tensor, sizes)
