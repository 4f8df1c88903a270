"""Scoring of whole documents of any length, in windows of the model's context.

A document of n tokens (bos, pieces, eos) has n - 1 predictions; each is made exactly once. The first
window starts at the first token and makes up to T predictions. Every later window starts `stride`
tokens further and makes only those that the one before did not reach, so each of its predictions has at
least `T - stride` tokens before it. Windows are run a few at a time, so memory is bounded whatever
the batch and the lengths. Notation: B documents, T context, W windows.
"""

from typing import NamedTuple

import tensorflow as tf

from trainer_module import loss, model
from trainer_module.config import ModelConfig

TOKENS_AT_ONCE = 4096
"""Windows of about this many tokens in all are run together."""


class Scores(NamedTuple):
    """Sums over each document; every field is [B]."""

    nll: tf.Tensor
    """float32: -log p of the predicted tokens, nats."""

    num_tokens: tf.Tensor
    """int64: predictions made."""

    num_correct: tf.Tensor
    """int64: predictions whose likeliest token was the right one."""


def stride(config: ModelConfig) -> int:
    """Tokens between the starts of two windows: three quarters of the context."""
    return max(1, config.seq_len - config.seq_len // 4)


def score(config: ModelConfig, params: model.Params, documents: tf.RaggedTensor) -> Scores:
    """Scores documents.

    Args:
      documents: [B, (tokens)] int32, each with its bos and eos.
    """
    length = config.seq_len
    step = stride(config)
    num_predictions = tf.maximum(tf.cast(documents.row_lengths(), tf.int32) - 1, 0)
    num_windows = 1 + tf.maximum(0, -(-(num_predictions - length) // step))
    # One entry a window: its document, its number in the document, where it starts.
    document = tf.repeat(tf.range(documents.nrows(out_type=tf.int32)), num_windows)
    number = tf.ragged.range(num_windows).flat_values
    start = number * step
    first_counted = tf.where(number == 0, 0, length - step)
    offset = tf.gather(tf.cast(documents.row_starts(), tf.int32), document) + start
    remaining = tf.gather(num_predictions, document) - start  # predictions from here to the end

    at_once = max(1, TOKENS_AT_ONCE // length)
    total = tf.size(document)
    rounds = -(-total // at_once)
    # A document of no tokens reads this one; its windows count nothing.
    tokens = tf.concat([documents.flat_values, [0]], axis=0)
    places = tf.range(length + 1)[None, :]

    def body(index: tf.Tensor, nll: tf.TensorArray, hits: tf.TensorArray) -> tuple[tf.Tensor, ...]:
        window = tf.range(index * at_once, tf.minimum((index + 1) * at_once, total))
        left = tf.gather(remaining, window)[:, None]
        inside = places <= left
        at = tf.where(inside, tf.gather(offset, window)[:, None] + places, tf.size(tokens) - 1)
        rows = tf.ensure_shape(tf.gather(tokens, at), [None, length + 1])
        hidden = model.hidden_states(config, params, rows[:, :-1], tf.cast(inside[:, :-1], tf.int32))
        counted = tf.logical_and(places[:, :-1] < left, places[:, :-1] >= tf.gather(first_counted, window)[:, None])
        losses, correct = tf.map_fn(
            lambda of_window: loss.token_losses(of_window[0], head, of_window[1], of_window[2]),
            (tf.ensure_shape(hidden, [None, length, config.width]), rows[:, 1:], counted),
            fn_output_signature=(tf.TensorSpec([length], tf.float32), tf.TensorSpec([length], tf.bool)),
            parallel_iterations=1,  # each holds logits of a window
        )
        return (
            index + 1,
            nll.write(index, tf.reduce_sum(losses, axis=1)),
            hits.write(index, tf.reduce_sum(tf.cast(correct, tf.int64), axis=1)),
        )

    head = model.head_weights(config, params)
    nll = tf.TensorArray(tf.float32, size=rounds, element_shape=[None], infer_shape=False)
    hits = tf.TensorArray(tf.int64, size=rounds, element_shape=[None], infer_shape=False)
    _, nll, hits = tf.while_loop(lambda index, *_: index < rounds, body, (0, nll, hits), parallel_iterations=1)
    batch = documents.nrows(out_type=tf.int32)
    return Scores(
        tf.math.unsorted_segment_sum(nll.concat(), document, batch),
        tf.cast(num_predictions, tf.int64),
        tf.math.unsorted_segment_sum(hits.concat(), document, batch),
    )
