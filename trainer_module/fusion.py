"""Regions: elementwise parts that XLA compiles inside a plain graph, whose matrix products stay the library's.

On processors XLA fuses well but multiplies matrices slower than oneDNN, and in bfloat16 much slower; a
plain graph multiplies fast but makes one pass over memory for each elementwise operation. A region takes
the better half of each. It keeps its arguments for the backward pass and computes its inside again.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf


@functools.cache
def region(function: Callable[..., Any], **static: Any) -> Callable[..., Any]:
    """`function`, compiled by XLA as a region of a graph, and so is its gradient.

    Args:
      function: of the module's top level, so that every layer shares one compilation; pure, of positional tensors.
      static: further arguments that are no tensors, hashable.

    Returns:
      A function of the tensors. Only floating-point ones get gradients.
    """

    @tf.function(jit_compile=True, autograph=False)
    def forward(*tensors: tf.Tensor) -> Any:
        return function(*tensors, **static)

    @tf.function(jit_compile=True, autograph=False)
    def backward(tensors: tuple[tf.Tensor, ...], upstream: tuple[tf.Tensor, ...]) -> list[tf.Tensor]:
        inputs = [tensor for tensor in tensors if tensor.dtype.is_floating]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(inputs)
            results = tf.nest.flatten(function(*tensors, **static))
        pairs = [pair for pair in zip(results, upstream, strict=True) if pair[0].dtype.is_floating]
        gradients: list[tf.Tensor] = tape.gradient(
            [result for result, _ in pairs],
            inputs,
            output_gradients=[gradient for _, gradient in pairs],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return gradients

    @tf.custom_gradient
    def call(*tensors: tf.Tensor) -> Any:
        def gradients_of(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            gradients = iter(backward(tensors, upstream))
            return [next(gradients) if tensor.dtype.is_floating else None for tensor in tensors]

        return forward(*tensors), gradients_of

    return call
