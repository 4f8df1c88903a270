"""Generation in the graph: the prompt once, then one token at a time over a cache of keys and values.

Rows are padded on the left, so that every row writes to the same slot of the cache; a row sees only
its own slots and counts positions from its own start, so it gives the same text alone and in a batch.
Notation: B batch, P longest prompt, N most new tokens, S = P + N slots, K heads of keys and values,
E features per head, V vocabulary.
"""

from typing import NamedTuple

import tensorflow as tf

from foundation.special_tokens import EOS_ID, PAD_ID
from trainer_module import attention, model
from trainer_module.config import ModelConfig


class Sampling(NamedTuple):
    """How each row picks its tokens; every field is [B]."""

    max_new_tokens: tf.Tensor
    """int32, clipped to 1 .. seq_len - 1."""

    temperature: tf.Tensor
    """float32; 0 picks the likeliest token."""

    top_k: tf.Tensor
    """int32; only the k likeliest tokens; 0 for all."""

    top_p: tf.Tensor
    """float32 in 0 .. 1; the likeliest tokens that together reach p, the one that crosses it included; 1 for all."""

    seed: tf.Tensor
    """int32; decides the row's random numbers."""


class Generated(NamedTuple):
    """What was generated for each row."""

    token_ids: tf.RaggedTensor
    """[B, (tokens)] int32, without the eos that ended it."""

    prompt_tokens_dropped: tf.Tensor
    """[B] int32: tokens cut off the front of a prompt that does not fit beside max_new_tokens."""


def generate(config: ModelConfig, params: model.Params, prompt_ids: tf.RaggedTensor, sampling: Sampling) -> Generated:
    """Continues each prompt until eos or its `max_new_tokens`.

    Args:
      prompt_ids: [B, (tokens)] int32, each row at least one token.
      sampling: per row.
    """
    max_new = tf.clip_by_value(sampling.max_new_tokens, 1, config.seq_len - 1)
    sampling = sampling._replace(max_new_tokens=max_new)
    lengths = tf.cast(prompt_ids.row_lengths(), tf.int32)
    kept = tf.minimum(lengths, config.seq_len - max_new)
    prompts, left_pad = _pad_left(prompt_ids, lengths, kept)

    uniforms = _uniforms(sampling.seed, tf.reduce_max(max_new))
    num_slots = tf.shape(prompts)[1] + tf.reduce_max(max_new)
    caches, logits = _prefill(config, params, prompts, left_pad, num_slots)
    tokens = _decode(config, params, caches, logits, left_pad, tf.shape(prompts)[1], sampling, uniforms)

    is_end = tf.logical_or(tokens == EOS_ID, tokens == PAD_ID)
    ended = tf.cumsum(tf.cast(is_end, tf.int32), axis=1) > 0
    return Generated(tf.ragged.boolean_mask(tokens, tf.logical_not(ended)), lengths - kept)


def _pad_left(prompt_ids: tf.RaggedTensor, lengths: tf.Tensor, kept: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The last `kept` tokens of each prompt, right-aligned: [B, P] int32; and the padding before each: [B] int32."""
    longest = tf.reduce_max(kept)
    left_pad = longest - kept
    slots = tf.range(longest)[None, :]
    places = tf.maximum(slots - left_pad[:, None] + (lengths - kept)[:, None], 0)
    starts = tf.cast(prompt_ids.row_starts(), tf.int32)[:, None]
    tokens = tf.gather(prompt_ids.flat_values, starts + places)
    return tf.where(slots >= left_pad[:, None], tokens, PAD_ID), left_pad


def _uniforms(seeds: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """[B, N] float32 in [0, 1): each row's own, whatever the batch."""
    return tf.map_fn(
        lambda seed: tf.random.stateless_uniform([count], seed=tf.stack([seed, 0])),
        seeds,
        fn_output_signature=tf.TensorSpec([None], tf.float32),
    )


def _prefill(
    config: ModelConfig, params: model.Params, prompts: tf.Tensor, left_pad: tf.Tensor, num_slots: tf.Tensor
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Runs the prompts [B, P] whole.

    Returns:
      Keys and values by layer (key 0, value 0, key 1, ...), each [S, B, K, E]; logits [B, V] after the last token.
    """
    slots = tf.range(tf.shape(prompts)[1])
    visible = tf.logical_and(
        slots[None, None, :] <= slots[None, :, None], slots[None, None, :] >= left_pad[:, None, None]
    )
    positions = tf.maximum(slots[None, :] - left_pad[:, None], 0)
    caches: list[tf.Tensor] = []
    room = num_slots - tf.shape(prompts)[1]

    def attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        for features in (key, value):
            caches.append(tf.pad(tf.transpose(features, [1, 0, 2, 3]), [[0, room], [0, 0], [0, 0], [0, 0]]))
        return attention.cached_attention(query, key, value, visible)

    hidden = model.embed(config, params, prompts, positions)
    phases = model.rotary(config, positions)
    for layer in range(config.num_layers):
        hidden = model.block(config, model.block_params(params, layer), hidden, phases, attend)
    last = model.normalize(config, params, "final_norm", hidden[:, -1])
    return caches, model.output_logits(config, params, last)


def _decode(
    config: ModelConfig,
    params: model.Params,
    caches: list[tf.Tensor],
    logits: tf.Tensor,
    left_pad: tf.Tensor,
    num_prompt_slots: tf.Tensor,
    sampling: Sampling,
    uniforms: tf.Tensor,
) -> tf.Tensor:
    """[B, N] int32; after eos and beyond a row's max_new_tokens: pad."""
    batch, most = tf.shape(logits)[0], tf.reduce_max(sampling.max_new_tokens)
    tokens = tf.TensorArray(tf.int32, size=most, element_shape=[None])

    def going_on(index: tf.Tensor, finished: tf.Tensor, *_: object) -> tf.Tensor:
        return tf.logical_and(index < most, tf.logical_not(tf.reduce_all(finished)))

    def body(
        index: tf.Tensor, finished: tf.Tensor, logits: tf.Tensor, tokens: tf.TensorArray, *caches: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        chosen = pick(logits, sampling, uniforms[:, index])
        chosen = tf.where(finished, PAD_ID, chosen)
        tokens = tokens.write(index, chosen)
        finished = finished | (chosen == EOS_ID) | (index + 1 >= sampling.max_new_tokens)
        logits, new_caches = _decode_one(config, params, list(caches), chosen, left_pad, num_prompt_slots + index)
        return (index + 1, finished, logits, tokens, *new_caches)

    state = (0, tf.fill([batch], False), logits, tokens, *caches)
    shapes = (tf.TensorShape([]), tf.TensorShape([None]), tf.TensorShape([None, config.vocab_size]), tf.TensorShape([]))
    cache_shape = tf.TensorShape([None, None, config.kv_heads, config.head_dim])
    count, _, _, tokens, *_ = tf.while_loop(
        going_on,
        body,
        state,
        shape_invariants=(*shapes, *[cache_shape] * len(caches)),
        maximum_iterations=config.seq_len,
    )
    written = tokens.gather(tf.range(count))
    return tf.transpose(written)


def _decode_one(
    config: ModelConfig,
    params: model.Params,
    caches: list[tf.Tensor],
    chosen: tf.Tensor,
    left_pad: tf.Tensor,
    slot: tf.Tensor,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Feeds one token [B] at `slot`; gives the logits [B, V] after it and the grown caches."""
    slots = tf.range(tf.shape(caches[0])[0])
    visible = tf.logical_and(slots[None, :] <= slot, slots[None, :] >= left_pad[:, None])[:, None, :]
    positions = tf.minimum(slot - left_pad, config.seq_len - 1)[:, None]
    remaining, grown = iter(caches), []

    def attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        for features in (key, value):
            row = tf.transpose(features, [1, 0, 2, 3])  # [1, B, K, E]
            grown.append(tf.tensor_scatter_nd_update(next(remaining), [[slot]], row))
        keys, values = (tf.transpose(cache, [1, 0, 2, 3]) for cache in grown[-2:])
        return attention.cached_attention(query, keys, values, visible)

    hidden = model.embed(config, params, chosen[:, None], positions)
    phases = model.rotary(config, positions)
    for layer in range(config.num_layers):
        hidden = model.block(config, model.block_params(params, layer), hidden, phases, attend)
    last = model.normalize(config, params, "final_norm", hidden[:, 0])
    return model.output_logits(config, params, last), grown


def pick(logits: tf.Tensor, sampling: Sampling, uniform: tf.Tensor) -> tf.Tensor:
    """One token per row, by inverting the cumulative distribution of what top-k and top-p leave.

    Args:
      logits: [B, V] float32.
      uniform: [B] float32 in [0, 1).

    Returns:
      [B] int32.
    """
    vocab = logits.shape[-1]
    greedy = sampling.temperature <= 0
    warmth = tf.where(greedy, 1.0, sampling.temperature)
    order = tf.argsort(logits, axis=-1, direction="DESCENDING", stable=True)
    ranked = tf.nn.softmax(tf.gather(logits, order, batch_dims=1) / warmth[:, None], axis=-1)
    most = tf.where(sampling.top_k > 0, sampling.top_k, vocab)[:, None]
    ranked = tf.where(tf.range(vocab)[None, :] < most, ranked, 0.0)
    ranked /= tf.reduce_sum(ranked, axis=-1, keepdims=True)
    before = tf.cumsum(ranked, axis=-1, exclusive=True)  # the token that crosses p has less than p before it
    first = tf.range(vocab)[None, :] == 0
    ranked = tf.where(tf.logical_or(before < sampling.top_p[:, None], first), ranked, 0.0)
    reached = tf.cumsum(ranked, axis=-1)
    rank = tf.reduce_sum(tf.cast(reached <= uniform[:, None] * reached[:, -1:], tf.int32), axis=-1)
    last_kept = tf.reduce_sum(tf.cast(ranked > 0, tf.int32), axis=-1) - 1
    rank = tf.where(greedy, 0, tf.minimum(rank, last_kept))
    return tf.gather(order, rank[:, None], batch_dims=1)[:, 0]
