"""How each row of a batch picks its next token.

The random part is the Gumbel trick: to the logits, over the temperature, noise is added, and the largest
wins; it follows exactly the distribution that top-k and top-p leave. The noise of a token depends on (seed,
number of the token in the answer, id) alone. So a row picks the same alone and in a batch, and a difference
in the last bits of the logits changes a pick only where the two best are as near as that: an inverted
cumulative distribution has hundreds of such edges. Notation: B batch, V vocabulary.
"""

from typing import NamedTuple

import tensorflow as tf

from foundation.special_tokens import EOS_ID, NUM_SPECIAL_TOKENS

_COOLEST = 1e-6
"""A temperature below this picks the likeliest token: the quotient would leave float32."""


class Sampling(NamedTuple):
    """How each row picks its tokens; every field is [B]."""

    max_new_tokens: tf.Tensor
    """int32, at least 1."""

    temperature: tf.Tensor
    """float32, at least 0; 0 picks the likeliest token."""

    top_k: tf.Tensor
    """int32; only the k likeliest tokens; 0 for all."""

    top_p: tf.Tensor
    """float32 in 0 .. 1; the likeliest tokens that together reach p, the one that crosses it included; 1 for all."""

    repetition_penalty: tf.Tensor
    """float32, above 0; logits of tokens that the text so far holds are divided by it where positive, multiplied where
    negative (CTRL, arXiv 1909.05858); 1 for none."""

    seed: tf.Tensor
    """int32; decides the row's random numbers."""


def check(sampling: Sampling, rows: tf.Tensor) -> list[tf.Operation]:
    """Assertions that the settings are possible, and one for each of the `rows` of the batch.

    Each raises InvalidArgumentError, naming the setting and what it takes.
    """
    one_each = [
        tf.debugging.assert_equal(tf.shape(value)[0], rows, f"{name} must have one value for each prompt")
        for name, value in sampling._asdict().items()
    ]
    temperature, penalty, top_p = sampling.temperature, sampling.repetition_penalty, sampling.top_p
    return [
        *one_each,
        tf.debugging.assert_greater_equal(sampling.max_new_tokens, 1, "max_new_tokens must be at least 1"),
        tf.debugging.assert_equal(
            tf.math.is_finite(temperature) & (temperature >= 0), True, "temperature must be finite and at least 0"
        ),
        tf.debugging.assert_greater_equal(sampling.top_k, 0, "top_k must be at least 0; 0 means all"),
        tf.debugging.assert_equal((top_p >= 0) & (top_p <= 1), True, "top_p must lie between 0 and 1; 1 means all"),
        tf.debugging.assert_equal(
            tf.math.is_finite(penalty) & (penalty > 0),
            True,
            "repetition_penalty must be finite and above 0; 1 means none",
        ),
    ]


def pick(logits: tf.Tensor, sampling: Sampling, seen: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """One token per row. Of the special tokens only eos is ever picked: the others stand for no text.

    Args:
      logits: [B, V] float32.
      seen: [B, V] bool, tokens that the text so far holds.
      number: [B] int32, of the token in the row's answer, from 0.

    Returns:
      [B] int32.
    """
    ids = tf.range(logits.shape[-1])
    allowed = (ids >= NUM_SPECIAL_TOKENS) | (ids == EOS_ID)
    penalty = sampling.repetition_penalty[:, None]
    logits = tf.where(seen, tf.where(logits > 0, logits / penalty, logits * penalty), logits)
    logits = tf.where(allowed, logits, -float("inf"))
    likeliest = tf.argmax(logits, axis=-1, output_type=tf.int32)
    greedy = sampling.temperature < _COOLEST

    def sampled() -> tf.Tensor:
        warmth = tf.where(greedy, 1.0, sampling.temperature)[:, None]
        warm = (logits - tf.reduce_max(logits, axis=-1, keepdims=True)) / warmth
        noise = gumbel_noise(sampling.seed, number, logits.shape[-1])
        limited = tf.reduce_any((sampling.top_k > 0) | (sampling.top_p < 1.0))
        chosen = tf.cond(
            limited,
            lambda: _largest_of_kept(warm, noise, sampling),
            lambda: tf.argmax(warm + noise, axis=-1, output_type=tf.int32),
        )
        return tf.where(greedy, likeliest, chosen)

    return tf.cond(tf.reduce_all(greedy), lambda: likeliest, sampled)


def _largest_of_kept(warm: tf.Tensor, noise: tf.Tensor, sampling: Sampling) -> tf.Tensor:
    """The token whose noisy logit is the largest among those that top-k and top-p keep: [B] int32."""
    vocab = warm.shape[-1]
    order = tf.argsort(warm, axis=-1, direction="DESCENDING", stable=True)
    ranked = tf.gather(warm, order, batch_dims=1)
    ranks = tf.range(vocab)[None, :]
    most = tf.where(sampling.top_k > 0, sampling.top_k, vocab)[:, None]
    ranked = tf.where(ranks < most, ranked, -float("inf"))
    probabilities = tf.nn.softmax(ranked, axis=-1)
    before = tf.cumsum(probabilities, axis=-1, exclusive=True)  # the token that crosses p has less than p before it
    top_p = sampling.top_p[:, None]
    kept = (before < top_p) | (ranks == 0) | (top_p >= 1.0)
    noisy = tf.where(kept, ranked + tf.gather(noise, order, batch_dims=1), -float("inf"))
    best = tf.argmax(noisy, axis=-1, output_type=tf.int32)
    return tf.gather(order, best[:, None], batch_dims=1)[:, 0]


def gumbel_noise(seed: tf.Tensor, number: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Gumbel noise of every token: [B], [B] int32 -> [B, V] float32.

    TensorFlow's stateless generators take one seed for a whole batch; these rows have one each. So a counter is
    hashed: MurmurHash3's finalizer, whose every input bit changes half of the output's.
    """
    key = _hash(_hash(tf.cast(seed, tf.uint32)) + tf.cast(number, tf.uint32) * _word(0x9E3779B1))
    of_token = _hash(tf.cast(tf.range(vocab_size), tf.uint32) + _word(0x7F4A7C15))
    bits = _hash(tf.bitwise.bitwise_xor(key[:, None], of_token[None, :]))
    # 24 bits fit a float32; the half keeps both logarithms finite.
    uniform = (tf.cast(_shifted(bits, 8), tf.float32) + 0.5) * 2.0**-24
    uniform = tf.minimum(uniform, 1.0 - 2.0**-24)
    return -tf.math.log(-tf.math.log(uniform))


def _hash(words: tf.Tensor) -> tf.Tensor:
    """uint32 of any shape to uint32."""
    words = tf.bitwise.bitwise_xor(words, _shifted(words, 16)) * _word(0x85EBCA6B)
    words = tf.bitwise.bitwise_xor(words, _shifted(words, 13)) * _word(0xC2B2AE35)
    return tf.bitwise.bitwise_xor(words, _shifted(words, 16))


def _shifted(words: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.right_shift(words, _word(bits))


def _word(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint32)
