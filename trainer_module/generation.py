"""Generation in the graph: the prompts once, then one token at a time over a cache of keys and values.

    state = prefill(config, params, prompt_ids, sampling)
    state = decode(config, params, state, num_steps)        # until no row is going on

The state is tensors alone, so a client can hold it between calls and stream what is there; however the steps
are cut into calls, the tokens are the same. A row's token at position p lies in slot p of its cache, whatever
the rows beside it, and sees the slots up to its own: what pads a batch is never seen. There is one graph for
all lengths and batches. Notation: B batch, P longest prompt, N most new tokens, S slots, K heads of keys and
values, E features per head, V vocabulary, C tokens fed at once.
"""

from typing import NamedTuple

import tensorflow as tf

from foundation.special_tokens import EOS_ID, PAD_ID
from trainer_module import attention, model
from trainer_module.config import ModelConfig
from trainer_module.sampling import Sampling, pick

PREFILL_TOKENS = 128
"""Tokens of a prompt fed at once, at most: bounds the memory of its attention."""

GOING_ON, AT_EOS, AT_LENGTH, AT_CONTEXT = range(4)
"""Values of `State.finish`: not finished; eos was picked; `max_new_tokens` were made; the context is full."""


class State(NamedTuple):
    """What generation knows between two tokens. First dimension B throughout."""

    sampling: Sampling
    prompt_tokens: tf.Tensor
    """[B] int32: tokens of the prompt that are seen."""

    prompt_tokens_dropped: tf.Tensor
    """[B] int32: tokens cut off the front of a prompt that is too long."""

    token_ids: tf.Tensor
    """[B, N] int32: what was generated, without eos; then padding."""

    num_tokens: tf.Tensor
    """[B] int32: how many of them."""

    finish: tf.Tensor
    """[B] int32: `GOING_ON`, or why the row has ended. A row that has ended does not change."""

    seen: tf.Tensor
    """[B, V] bool: tokens of the prompt and of what was generated."""

    logits: tf.Tensor
    """[B, V] float32 of the next token, before temperature and the like."""

    caches: list[tf.Tensor]
    """Keys and values by layer (key 0, value 0, key 1, ...), each [B, K, S, E]."""


def generate(config: ModelConfig, params: model.Params, prompt_ids: tf.RaggedTensor, sampling: Sampling) -> State:
    """Continues each prompt until eos, its `max_new_tokens`, or the end of the context: `prefill`, then `decode`."""
    return decode(config, params, prefill(config, params, prompt_ids, sampling), tf.constant(config.seq_len))


def prefill(config: ModelConfig, params: model.Params, prompt_ids: tf.RaggedTensor, sampling: Sampling) -> State:
    """Reads the prompts.

    A prompt keeps its tail. It is cut only where it does not fit beside its `max_new_tokens` or half a context,
    whichever is less; so one that asks for more than the context holds still sees its prompt, and ends where the
    context does.

    Args:
      prompt_ids: [B, (tokens)] int32, each row at least one token.
      sampling: per row.
    """
    lengths = tf.cast(prompt_ids.row_lengths(), tf.int32)
    reserved = tf.minimum(sampling.max_new_tokens, config.seq_len // 2)
    kept = tf.minimum(lengths, config.seq_len - reserved)
    prompts = _tails(prompt_ids, lengths, kept)
    batch, longest = tf.shape(prompts)[0], tf.shape(prompts)[1]
    room = tf.reduce_max(tf.concat([_limit(config, sampling, kept), [1]], axis=0))
    rounds = -(-longest // PREFILL_TOKENS)
    at_once = -(-longest // rounds)
    prompts = tf.pad(prompts, [[0, 0], [0, rounds * at_once - longest]], constant_values=PAD_ID)
    num_slots = tf.maximum(longest + room, rounds * at_once)
    caches = [tf.zeros([batch, config.kv_heads, num_slots, config.head_dim])] * (2 * config.num_layers)

    def body(index: tf.Tensor, last: tf.Tensor, *caches: tf.Tensor) -> tuple[tf.Tensor, ...]:
        start = index * at_once
        tokens = prompts[:, start : start + at_once]
        first = tf.fill([batch], start)
        hidden, grown = _extend(config, params, list(caches), tokens, first, start + at_once)
        place = tf.clip_by_value(kept - 1 - start, 0, at_once - 1)
        ends_here = (kept > start) & (kept <= start + at_once)
        here = tf.gather(hidden, place[:, None], batch_dims=1)[:, 0]
        return (index + 1, tf.where(ends_here[:, None], here, last), *grown)

    _, last, *caches = tf.while_loop(
        lambda index, *_: index < rounds,
        body,
        (0, tf.zeros([batch, config.width]), *caches),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, config.width]), *_cache_shapes(config)),
    )
    ids = tf.range(config.vocab_size)
    rows = tf.repeat(tf.range(batch), kept)
    places = tf.stack([rows, tf.boolean_mask(prompts, tf.sequence_mask(kept, tf.shape(prompts)[1]))], axis=1)
    seen = tf.tensor_scatter_nd_update(tf.fill([batch, tf.size(ids)], False), places, tf.fill([tf.size(rows)], True))
    return State(
        sampling=sampling,
        prompt_tokens=kept,
        prompt_tokens_dropped=lengths - kept,
        token_ids=tf.fill([batch, room], PAD_ID),
        num_tokens=tf.zeros_like(kept),
        finish=tf.fill([batch], GOING_ON),
        seen=seen,
        logits=model.output_logits(config, params, last),
        caches=caches,
    )


def decode(config: ModelConfig, params: model.Params, state: State, num_steps: tf.Tensor) -> State:
    """Makes up to `num_steps` more tokens for every row that is going on.

    Args:
      state: of `prefill` or `decode`.
      num_steps: int32 scalar.
    """
    limit = _limit(config, state.sampling, state.prompt_tokens)
    at_limit = tf.where(limit < state.sampling.max_new_tokens, AT_CONTEXT, AT_LENGTH)
    places = tf.range(tf.shape(state.token_ids)[1])[None, :]
    ids = tf.range(config.vocab_size)[None, :]

    def going_on(step: tf.Tensor, _: tf.Tensor, __: tf.Tensor, finish: tf.Tensor, *___: tf.Tensor) -> tf.Tensor:
        return tf.logical_and(step < num_steps, tf.reduce_any(finish == GOING_ON))

    def body(
        step: tf.Tensor,
        token_ids: tf.Tensor,
        num_tokens: tf.Tensor,
        finish: tf.Tensor,
        seen: tf.Tensor,
        logits: tf.Tensor,
        *caches: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        active = finish == GOING_ON
        chosen = pick(logits, state.sampling, seen, num_tokens)
        ended = active & (chosen == EOS_ID)
        made = active & (chosen != EOS_ID)
        token_ids = tf.where(made[:, None] & (places == num_tokens[:, None]), chosen[:, None], token_ids)
        seen = seen | (made[:, None] & (ids == chosen[:, None]))
        # A row that has ended is fed again what nobody reads, where it does no harm: in a slot after its last token.
        slot = tf.minimum(state.prompt_tokens + num_tokens, tf.shape(caches[0])[2] - 1)
        hidden, grown = _extend(config, params, list(caches), chosen[:, None], slot, None)
        num_tokens += tf.cast(made, tf.int32)
        finish = tf.where(ended, AT_EOS, tf.where(made & (num_tokens >= limit), at_limit, finish))
        following = model.output_logits(config, params, hidden[:, 0])
        return (step + 1, token_ids, num_tokens, finish, seen, tf.where(made[:, None], following, logits), *grown)

    row, vocab = tf.TensorShape([None]), tf.TensorShape([None, config.vocab_size])
    shapes = (tf.TensorShape([]), tf.TensorShape([None, None]), row, row, vocab, vocab, *_cache_shapes(config))
    start = (0, state.token_ids, state.num_tokens, state.finish, state.seen, state.logits, *state.caches)
    _, token_ids, num_tokens, finish, seen, logits, *caches = tf.while_loop(
        going_on, body, start, shape_invariants=shapes, maximum_iterations=config.seq_len
    )
    return state._replace(
        token_ids=token_ids, num_tokens=num_tokens, finish=finish, seen=seen, logits=logits, caches=caches
    )


def generated_ids(state: State) -> tf.RaggedTensor:
    """[B, (tokens)] int32."""
    return tf.RaggedTensor.from_tensor(state.token_ids, lengths=state.num_tokens)


def _limit(config: ModelConfig, sampling: Sampling, prompt_tokens: tf.Tensor) -> tf.Tensor:
    """[B] int32: tokens that a row can make."""
    return tf.minimum(sampling.max_new_tokens, config.seq_len - prompt_tokens)


def _tails(prompt_ids: tf.RaggedTensor, lengths: tf.Tensor, kept: tf.Tensor) -> tf.Tensor:
    """The last `kept` tokens of each prompt, padded behind: [B, P] int32, P at least 1."""
    longest = tf.reduce_max(tf.concat([kept, [1]], axis=0))
    places = tf.range(longest)[None, :]
    inside = places < kept[:, None]
    starts = tf.cast(prompt_ids.row_starts(), tf.int32) + lengths - kept
    tokens = tf.gather(prompt_ids.flat_values, tf.where(inside, starts[:, None] + places, 0))
    return tf.where(inside, tokens, PAD_ID)


def _extend(
    config: ModelConfig,
    params: model.Params,
    caches: list[tf.Tensor],
    token_ids: tf.Tensor,
    first: tf.Tensor,
    num_slots: tf.Tensor | None,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Feeds C tokens to each row.

    Args:
      token_ids: [B, C].
      first: [B] int32, the slot and position of each row's first.
      num_slots: nothing beyond so many slots is visible to any row; None: no such bound is known.

    Returns:
      Hidden states [B, C, D], normalized; the grown caches.
    """
    positions = first[:, None] + tf.range(tf.shape(token_ids)[1])[None, :]
    visible = (
        tf.range(tf.shape(caches[0])[2] if num_slots is None else num_slots)[None, None, :] <= positions[..., None]
    )
    rows, heads = tf.range(tf.shape(token_ids)[0]), tf.range(config.kv_heads)
    places = tf.stack(tf.meshgrid(rows, heads, tf.range(tf.shape(token_ids)[1]), indexing="ij"), axis=-1)
    places += first[:, None, None, None] * tf.constant([0, 0, 1])  # [B, K, C, 3]: row, head, slot
    remaining, grown = iter(caches), []

    def attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        for features in (key, value):
            updates = tf.transpose(features, [0, 2, 1, 3])  # [B, K, C, E]
            grown.append(tf.tensor_scatter_nd_update(next(remaining), places, updates))
        keys, values = (cache if num_slots is None else cache[:, :, :num_slots] for cache in grown[-2:])
        return attention.cached_attention(query, keys, values, visible)

    # What pads a batch may lie beyond the last position that the model knows.
    positions = tf.minimum(positions, config.seq_len - 1)
    hidden = model.embed(config, params, token_ids, positions)
    phases = model.rotary(config, positions)
    for layer in range(config.num_layers):
        hidden = model.block(config, model.block_params(params, layer), hidden, phases, attend)
    return model.normalize(config, params, "final_norm", hidden), grown


def _cache_shapes(config: ModelConfig) -> list[tf.TensorShape]:
    return [tf.TensorShape([None, config.kv_heads, None, config.head_dim])] * (2 * config.num_layers)
