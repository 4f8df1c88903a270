"""Next-token cross entropy in chunks: the logits [B, T, V] never exist whole.

A while loop takes `CHUNK_TOKENS` tokens at a time; for training it computes the gradient in the same
pass, so nothing of a chunk is kept. Notation: N tokens, D width, V vocabulary, C tokens in a chunk.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from trainer_module.fusion import region

CHUNK_TOKENS = 1024
"""C. Large enough for full matmul speed, small beside the weights: C x V floats live at a time."""


def targets_of(token_ids: tf.Tensor, segment_ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """What each input of a packed row has to predict.

    Args:
      token_ids, segment_ids: [B, T + 1] int32.

    Returns:
      targets: [B, T] int32.
      counted: [B, T] bool; False where the next token belongs to another document or is padding.
    """
    same_document = segment_ids[:, 1:] == segment_ids[:, :-1]
    return token_ids[:, 1:], tf.logical_and(same_document, segment_ids[:, 1:] != 0)


def count_targets(segment_ids: np.ndarray) -> int:
    """Tokens that count among the targets of rows [B, T + 1], as `targets_of` says, on the host."""
    following = segment_ids[:, 1:]
    return int(np.count_nonzero((following == segment_ids[:, :-1]) & (following != 0)))


class Objective(NamedTuple):
    """What is minimized, beside -log p of the target."""

    label_smoothing: float = 0.0
    """Share of the target's probability that is spread over the whole vocabulary (arXiv 1512.00567)."""

    z_loss: float = 0.0
    """Weight of log(sum of exp(logits))^2 (PaLM, arXiv 2204.02311)."""


PLAIN = Objective()
"""-log p alone."""


def summed_loss(
    hidden: tf.Tensor,
    head: tf.Tensor,
    targets: tf.Tensor,
    counted: tf.Tensor,
    objective: Objective = PLAIN,
    fused: bool = False,
) -> tf.Tensor:
    """Sum, not mean, of -log p(target) in nats over the counted tokens.

    Sums add over microbatches and workers; whoever has them all divides once. The value is -log p whatever
    the objective, so that runs compare; the gradient, with respect to `hidden` and `head`, is the objective's.

    Args:
      hidden: [N, D]; N known. Its dtype is that of the products.
      head: [V, D] float32.
      targets: [N] int32.
      counted: [N] bool.
      fused: elementwise parts are regions that XLA compiles (`trainer_module.fusion`).

    Returns:
      float32 scalar.
    """

    @tf.custom_gradient
    def loss_of(hidden: tf.Tensor, head: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
        loss, hidden_gradient, head_gradient = _loss_and_gradients(hidden, head, targets, counted, objective, fused)

        def backward(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return tf.cast(upstream, hidden.dtype) * hidden_gradient, upstream * head_gradient

        return loss, backward

    return loss_of(hidden, head)


def token_losses(
    hidden: tf.Tensor, head: tf.Tensor, targets: tf.Tensor, counted: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Loss and hit of every token, for evaluation.

    Args:
      As `summed_loss`.

    Returns:
      nll: [N] float32, -log p(target) in nats; 0 where not counted.
      hits: [N] bool, whether the target is the likeliest token; False where not counted.
    """
    chunks = _Chunks(hidden, targets, counted)
    head = tf.cast(head, hidden.dtype)
    nll = tf.TensorArray(tf.float32, size=chunks.count, element_shape=[chunks.size])
    hits = tf.TensorArray(tf.bool, size=chunks.count, element_shape=[chunks.size])

    def body(index: tf.Tensor, nll: tf.TensorArray, hits: tf.TensorArray) -> tuple[tf.Tensor, ...]:
        inputs, labels, weights = chunks.take(index)
        logits = _logits(inputs, head)
        best = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return (
            index + 1,
            nll.write(index, tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits) * weights),
            hits.write(index, tf.logical_and(best == labels, weights > 0)),
        )

    _, nll, hits = tf.while_loop(
        lambda index, *_: index < chunks.count, body, (0, nll, hits), maximum_iterations=chunks.count
    )
    return chunks.join(nll.stack()), chunks.join(hits.stack())


def _loss_and_gradients(
    hidden: tf.Tensor, head: tf.Tensor, targets: tf.Tensor, counted: tf.Tensor, objective: Objective, fused: bool
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Summed loss; the objective's gradients [N, D] in the dtype of `hidden` and [V, D] float32.

    The gradient of a token's logits is a p - b y - c: p the probabilities, y 1 at the target, and a, b, c numbers
    that the objective decides. Only p is as large as [C, V]; so p, unnormalized, is all that is multiplied there,
    and the rest is done where it is [C, D].
    """
    chunks = _Chunks(hidden, targets, counted)
    width, vocab = head.shape[1], head.shape[0]
    narrow_head = tf.cast(head, hidden.dtype)
    share = region(_softmax_parts) if fused else _softmax_parts
    at_target, everywhere = 1.0 - objective.label_smoothing, objective.label_smoothing / vocab
    head_sum = tf.reduce_sum(head, axis=0)
    hidden_gradients = tf.TensorArray(hidden.dtype, size=chunks.count, element_shape=[chunks.size, width])

    def body(
        index: tf.Tensor, loss: tf.Tensor, hidden_gradients: tf.TensorArray, head_gradient: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        inputs, labels, weights = chunks.take(index)
        nll, log_sum, exponentials, inverse_sum = share(tf.matmul(inputs, narrow_head, transpose_b=True), labels)
        of_probabilities = weights * (1.0 + 2.0 * objective.z_loss * log_sum) * inverse_sum
        gradient = of_probabilities[:, None] * tf.cast(tf.matmul(exponentials, narrow_head), tf.float32)
        gradient -= weights[:, None] * (at_target * tf.gather(head, labels) + everywhere * head_sum)
        scaled = tf.cast(inputs, tf.float32) * of_probabilities[:, None]
        # As [D, V]: XLA:CPU is twice as slow when a transposed product has more rows than columns.
        product = tf.matmul(tf.cast(scaled, inputs.dtype), exponentials, transpose_a=True)
        return (
            index + 1,
            loss + tf.reduce_sum(nll * weights),
            hidden_gradients.write(index, tf.cast(gradient, inputs.dtype)),
            head_gradient + tf.cast(product, tf.float32),
        )

    start = (0, tf.constant(0.0), hidden_gradients, tf.zeros([width, vocab]))
    _, loss, hidden_gradients, head_gradient = tf.while_loop(
        lambda index, *_: index < chunks.count, body, start, maximum_iterations=chunks.count
    )
    inputs = tf.cast(hidden, tf.float32) * tf.cast(counted, tf.float32)[:, None]
    of_targets = tf.tensor_scatter_nd_sub(tf.transpose(head_gradient), targets[:, None], at_target * inputs)
    if everywhere:
        of_targets -= everywhere * tf.reduce_sum(inputs, axis=0)
    return loss, chunks.join(hidden_gradients.stack()), of_targets


def _softmax_parts(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """What a chunk's loss and gradient are made of.

    Args:
      logits: [C, V].
      labels: [C] int32.

    Returns:
      nll, log_sum: [C] float32: -log p(label); log of the sum of exp(logits).
      exponentials: [C, V] in the dtype of the logits: exp(logits - largest); inverse_sum: [C] float32, of their sum.
    """
    wide = tf.cast(logits, tf.float32)
    largest = tf.reduce_max(wide, axis=-1, keepdims=True)
    exponentials = tf.exp(wide - largest)
    total = tf.reduce_sum(exponentials, axis=-1)
    log_sum = tf.math.log(total) + largest[:, 0]
    nll = log_sum - tf.gather(wide, labels, axis=1, batch_dims=1)
    return nll, log_sum, tf.cast(exponentials, logits.dtype), 1.0 / total


def _logits(inputs: tf.Tensor, head: tf.Tensor) -> tf.Tensor:
    """[C, D] x [V, D] -> [C, V], float32."""
    return tf.cast(tf.matmul(inputs, head, transpose_b=True), tf.float32)


class _Chunks:
    """N tokens cut into `count` chunks of `size`; the last is filled up with tokens that do not count."""

    def __init__(self, hidden: tf.Tensor, targets: tf.Tensor, counted: tf.Tensor):
        self.total = hidden.shape[0]
        self.count = max(1, -(-self.total // CHUNK_TOKENS))
        self.size = -(-self.total // self.count)
        filling = self.count * self.size - self.total
        self._hidden = tf.reshape(tf.pad(hidden, [[0, filling], [0, 0]]), [self.count, self.size, hidden.shape[1]])
        self._targets = tf.reshape(tf.pad(targets, [[0, filling]]), [self.count, self.size])
        weights = tf.pad(tf.cast(counted, tf.float32), [[0, filling]])
        self._weights = tf.reshape(weights, [self.count, self.size])

    def take(self, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Inputs [C, D], labels [C], weights [C] of one chunk."""
        return self._hidden[index], self._targets[index], self._weights[index]

    def join(self, chunked: tf.Tensor) -> tf.Tensor:
        """[count, C, ...] -> [N, ...]."""
        flat = tf.reshape(chunked, [self.count * self.size, *chunked.shape[2:]])
        return flat[: self.total]
