"""Next-token cross entropy in chunks: the logits [B, T, V] never exist whole.

A while loop takes `CHUNK_TOKENS` tokens at a time; for training it computes the gradient in the same
pass, so nothing of a chunk is kept. Notation: N tokens, D width, V vocabulary, C tokens in a chunk.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

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


class Objective(NamedTuple):
    """What is minimized, beside -log p of the target."""

    label_smoothing: float = 0.0
    """Share of the target's probability that is spread over the whole vocabulary (arXiv 1512.00567)."""

    z_loss: float = 0.0
    """Weight of log(sum of exp(logits))^2 (PaLM, arXiv 2204.02311)."""

    @property
    def is_plain(self) -> bool:
        """Whether it is -log p alone."""
        return self.label_smoothing == 0.0 and self.z_loss == 0.0


PLAIN = Objective()
"""-log p alone."""


def summed_loss(
    hidden: tf.Tensor, head: tf.Tensor, targets: tf.Tensor, counted: tf.Tensor, objective: Objective = PLAIN
) -> tf.Tensor:
    """Sum, not mean, of -log p(target) in nats over the counted tokens.

    Sums add over microbatches and workers; whoever has them all divides once. The value is -log p whatever
    the objective, so that runs compare; the gradient, with respect to `hidden` and `head`, is the objective's.

    Args:
      hidden: [N, D]; N known. Its dtype is that of the products.
      head: [V, D] float32.
      targets: [N] int32.
      counted: [N] bool.

    Returns:
      float32 scalar.
    """

    @tf.custom_gradient
    def loss_of(hidden: tf.Tensor, head: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
        loss, hidden_gradient, head_gradient = _loss_and_gradients(hidden, head, targets, counted, objective)

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
    hidden: tf.Tensor, head: tf.Tensor, targets: tf.Tensor, counted: tf.Tensor, objective: Objective
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Summed loss; the objective's gradients [N, D] in the dtype of `hidden` and [V, D] float32."""
    chunks = _Chunks(hidden, targets, counted)
    width, vocab = head.shape[1], head.shape[0]
    head = tf.cast(head, hidden.dtype)
    hidden_gradients = tf.TensorArray(hidden.dtype, size=chunks.count, element_shape=[chunks.size, width])

    def body(
        index: tf.Tensor, loss: tf.Tensor, hidden_gradients: tf.TensorArray, head_gradient: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        inputs, labels, weights = chunks.take(index)
        logits = _logits(inputs, head)
        nll, difference = _nll_and_gradient(logits, labels, objective)
        difference = tf.cast(difference, inputs.dtype)  # d objective / d logits, of uncounted tokens as well
        # What does not count is taken out where it is [C, D], not where it is [C, V].
        counts = tf.cast(weights, inputs.dtype)[:, None]
        return (
            index + 1,
            loss + tf.reduce_sum(nll * weights),
            hidden_gradients.write(index, tf.matmul(difference, head) * counts),
            # As [D, V]: XLA:CPU is twice as slow when a transposed product has more rows than columns.
            head_gradient + tf.cast(tf.matmul(inputs * counts, difference, transpose_a=True), tf.float32),
        )

    start = (0, tf.constant(0.0), hidden_gradients, tf.zeros([width, vocab]))
    _, loss, hidden_gradients, head_gradient = tf.while_loop(
        lambda index, *_: index < chunks.count, body, start, maximum_iterations=chunks.count
    )
    return loss, chunks.join(hidden_gradients.stack()), tf.transpose(head_gradient)


def _logits(inputs: tf.Tensor, head: tf.Tensor) -> tf.Tensor:
    """[C, D] x [V, D] -> [C, V], float32."""
    return tf.cast(tf.matmul(inputs, head, transpose_b=True), tf.float32)


def _nll_and_gradient(logits: tf.Tensor, labels: tf.Tensor, objective: Objective) -> tuple[tf.Tensor, tf.Tensor]:
    """-log p(label) [C], and the objective's gradient [C, V], of logits [C, V]."""
    # One op for both: as a graph it is a single pass where its parts would be ten over [C, V].
    nll, gradient = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=labels)
    if objective.is_plain:
        return nll, gradient
    vocab = logits.shape[1]
    target = tf.one_hot(labels, vocab)
    log_sum = nll + tf.gather(logits, labels, axis=1, batch_dims=1)
    smoothing = objective.label_smoothing
    gradient += smoothing * (target - 1.0 / vocab)
    return nll, gradient + 2.0 * objective.z_loss * log_sum[:, None] * tf.nn.softmax(logits)


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
