"""Gradient checkpointing: keep a stretch's inputs, compute its inside again in the backward pass (arXiv 1604.06174)."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def recomputed(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of which only the arguments are kept for the backward pass.

    Args:
      function: pure; every tensor that needs a gradient is one of its positional arguments, or inside a list or
        dictionary among them; random numbers in it are stateless. What it needs of its own result for the gradient
        of its last operation is computed again, too; what is not needed is pruned.

    Returns:
      A function of the same arguments and results.
    """

    def call(*arguments: Any) -> Any:
        flat = tf.nest.flatten(arguments)

        def of_flat(*tensors: tf.Tensor) -> Any:
            return function(*tf.nest.pack_sequence_as(arguments, tensors))

        return tf.recompute_grad(of_flat)(*flat)

    return call
