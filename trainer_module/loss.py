"""Next-token cross entropy in chunks: the logits [B, T, V] never exist whole.

A while loop takes `CHUNK_TOKENS` tokens at a time; for training it computes the gradient in the same
pass, so nothing of a chunk is kept. Notation: N tokens, D width, V vocabulary, C tokens in a chunk.
"""

from collections.abc import Callable

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


def summed_loss(hidden: tf.Tensor, head: tf.Tensor, targets: tf.Tensor, counted: tf.Tensor) -> tf.Tensor:
    """Sum, not mean, of -log p(target) in nats over the counted tokens.

    Sums add over microbatches and workers; whoever has them all divides once. Differentiable with
    respect to `hidden` and `head`.

    Args:
      hidden: [N, D]; N known.
      head: [V, D].
      targets: [N] int32.
      counted: [N] bool.

    Returns:
      float32 scalar.
    """

    @tf.custom_gradient
    def loss_of(hidden: tf.Tensor, head: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
        loss, hidden_gradient, head_gradient = _loss_and_gradients(hidden, head, targets, counted)

        def backward(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return upstream * hidden_gradient, upstream * head_gradient

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
    nll = tf.TensorArray(tf.float32, size=chunks.count, element_shape=[chunks.size])
    hits = tf.TensorArray(tf.bool, size=chunks.count, element_shape=[chunks.size])

    def body(index: tf.Tensor, nll: tf.TensorArray, hits: tf.TensorArray) -> tuple[tf.Tensor, ...]:
        inputs, labels, weights = chunks.take(index)
        logits = _logits(inputs, head)
        best = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return (
            index + 1,
            nll.write(index, _nll(logits, labels)[0] * weights),
            hits.write(index, tf.logical_and(best == labels, weights > 0)),
        )

    _, nll, hits = tf.while_loop(
        lambda index, *_: index < chunks.count, body, (0, nll, hits), maximum_iterations=chunks.count
    )
    return chunks.join(nll.stack()), chunks.join(hits.stack())


def _loss_and_gradients(
    hidden: tf.Tensor, head: tf.Tensor, targets: tf.Tensor, counted: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Summed loss; its gradients [N, D] and [V, D]."""
    chunks = _Chunks(hidden, targets, counted)
    width, vocab = head.shape[1], head.shape[0]
    hidden_gradients = tf.TensorArray(hidden.dtype, size=chunks.count, element_shape=[chunks.size, width])

    def body(
        index: tf.Tensor, loss: tf.Tensor, hidden_gradients: tf.TensorArray, head_gradient: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        inputs, labels, weights = chunks.take(index)
        logits = _logits(inputs, head)
        nll, log_sum = _nll(logits, labels)
        probabilities = tf.exp(logits - log_sum[:, None])
        difference = (probabilities - tf.one_hot(labels, vocab)) * weights[:, None]  # d loss / d logits
        difference = tf.cast(difference, inputs.dtype)
        return (
            index + 1,
            loss + tf.reduce_sum(nll * weights),
            hidden_gradients.write(index, tf.matmul(difference, head)),
            # As [D, V]: XLA:CPU is twice as slow when a transposed product has more rows than columns.
            head_gradient + tf.cast(tf.matmul(inputs, difference, transpose_a=True), tf.float32),
        )

    start = (0, tf.constant(0.0), hidden_gradients, tf.zeros([width, vocab]))
    _, loss, hidden_gradients, head_gradient = tf.while_loop(
        lambda index, *_: index < chunks.count, body, start, maximum_iterations=chunks.count
    )
    return loss, chunks.join(hidden_gradients.stack()), tf.cast(tf.transpose(head_gradient), head.dtype)


def _logits(inputs: tf.Tensor, head: tf.Tensor) -> tf.Tensor:
    """[C, D] x [V, D] -> [C, V], float32."""
    return tf.cast(tf.matmul(inputs, head, transpose_b=True), tf.float32)


def _nll(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """-log p(label) and log sum exp, each [C], of logits [C, V]."""
    log_sum = tf.reduce_logsumexp(logits, axis=-1)
    return log_sum - tf.gather(logits, labels, axis=1, batch_dims=1), log_sum


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
