"""Attention over packed rows: causal, never across documents, positions counted within a document.

Notation: B batch, T queries, S keys, H heads, K heads of keys and values, G = H / K, E features per head.
"""

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer_module.shapes import reshape, sizes_of

_SMALLEST_BLOCK = 64
"""Queries handled at once, at least: with fewer, products are too small; with more, more of what a causal mask
hides is computed."""

_MOST_BLOCKS = 8
"""Of a row: each block is code of its own, so more would make compilation long."""

_MASKED = -1e30
"""Score of a masked key. Finite, so that a row of masked keys gives no NaN."""


def document_positions(segment_ids: tf.Tensor) -> tf.Tensor:
    """Position of each token in its document's part of the row.

    Args:
      segment_ids: [B, T] int32; equal and adjacent within a document.

    Returns:
      [B, T] int32, 0 at the start of every segment.
    """
    length = segment_ids.shape[1]
    index = tf.range(length)
    starts = tf.concat([tf.ones_like(segment_ids[:, :1]), segment_ids[:, 1:] - segment_ids[:, :-1]], axis=1)
    start_index = tf.where(starts != 0, index, 0)
    # The running maximum of start indices, as a masked maximum: XLA has no cumulative maximum.
    causal = index[None, :] <= index[:, None]
    latest = tf.reduce_max(tf.where(causal, start_index[:, None, :], 0), axis=2)
    return index - latest


def rope_phases(positions: tf.Tensor, head_dim: int, theta: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Cosines and sines of rotary phases, float32 (RoFormer, arXiv 2104.09864).

    Args:
      positions: [B, T] int32.

    Returns:
      Two tensors [B, T, 1, E / 2].
    """
    exponents = tf.range(0, head_dim, 2, dtype=tf.float32) / head_dim
    angles = tf.cast(positions, tf.float32)[:, :, None, None] * tf.pow(tf.constant(theta, tf.float32), -exponents)
    return tf.cos(angles), tf.sin(angles)


def rotate(features: tf.Tensor, cosine: tf.Tensor, sine: tf.Tensor) -> tf.Tensor:
    """Turns feature pairs (i, i + E / 2) by their phases, in float32. [B, T, heads, E] -> the same shape and dtype."""
    first, second = tf.split(tf.cast(features, tf.float32), 2, axis=-1)
    rotated = tf.concat([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
    return tf.cast(rotated, features.dtype)


def packed_attention(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    segment_ids: tf.Tensor,
    recompute: bool = False,
    compiled: bool = False,
) -> tf.Tensor:
    """Causal attention within segments.

    The gradient is written by hand: products of the transposed weights, which libraries are slow at, become
    products of transposed queries and output gradients, which are narrow.

    Args:
      query: [B, T, H, E].
      key, value: [B, T, K, E].
      segment_ids: [B, T] int32.
      recompute: the backward pass computes the weights again instead of keeping them.
      compiled: XLA compiles forward and backward, each as one region of a graph.

    Returns:
      [B, T, H, E]. Where a token is padding (segment 0) it attends to padding; nobody reads that.
    """
    forward, backward = (_compiled_forward, _compiled_backward) if compiled else (_forward, _backward)

    @tf.custom_gradient
    def attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        mixed, weights = forward(query, key, value, segment_ids)

        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            kept = [] if recompute else weights
            gradients: tuple[tf.Tensor, tf.Tensor, tf.Tensor] = backward(
                query, key, value, segment_ids, mixed, upstream, kept
            )
            return gradients

        return mixed, gradients

    mixed: tf.Tensor = attend(query, key, value)
    return mixed


def cached_attention(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, visible: tf.Tensor) -> tf.Tensor:
    """Attention of some queries to a cache of keys.

    Args:
      query: [B, T, H, E].
      key, value: [B, K, S, E]: by head, so that a step over a long cache need not turn it.
      visible: [B, T, S] bool.

    Returns:
      [B, T, H, E].
    """
    queries = _by_head(query, key.shape[1])
    weights = _weights(_rows(queries), key, visible)
    return _by_position(reshape(tf.matmul(weights, value), sizes_of(queries)))


def _forward(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, segment_ids: tf.Tensor
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Attention's result [B, T, H, E], and the weights [B, K, G x t, S] of each block of t queries and S keys."""
    kv_heads = key.shape[2]
    queries, keys, values = _by_head(query, kv_heads), _by_kv_head(key), _by_kv_head(value)
    results, weights_of_blocks = [], []
    for start, stop in _query_blocks(query.shape[1]):
        rows = _rows(queries[:, :, :, start:stop])
        weights = _weights(rows, keys[:, :, :stop], _visible(segment_ids, start, stop))
        result = tf.matmul(weights, values[:, :, :stop])
        results.append(tf.reshape(result, tf.shape(queries[:, :, :, start:stop])))
        weights_of_blocks.append(weights)
    mixed = _by_position(tf.concat(results, axis=3))
    return tf.ensure_shape(mixed, query.shape), weights_of_blocks


def _backward(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    segment_ids: tf.Tensor,
    mixed: tf.Tensor,
    upstream: tf.Tensor,
    weights_of_blocks: list[tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradients of query, key and value, in their shapes.

    Args:
      mixed, upstream: [B, T, H, E]: attention's result and its gradient.
      weights_of_blocks: as `_forward` gives them, or empty: they are computed again.
    """
    length, kv_heads = query.shape[1], key.shape[2]
    queries, keys, values = _by_head(query, kv_heads), _by_kv_head(key), _by_kv_head(value)
    results, upstreams = _by_head(mixed, kv_heads), _by_head(upstream, kv_heads)
    # A weight's gradient enters the softmax's as a difference from its row's mean, which is this.
    row_means = tf.reduce_sum(tf.cast(results, tf.float32) * tf.cast(upstreams, tf.float32), axis=-1, keepdims=True)
    query_gradients = []
    key_gradient = value_gradient = tf.zeros_like(tf.linalg.matrix_transpose(keys))  # [B, K, E, S]
    for number, (start, stop) in enumerate(_query_blocks(length)):
        rows, upstream_rows = _rows(queries[:, :, :, start:stop]), _rows(upstreams[:, :, :, start:stop])
        if weights_of_blocks:
            weights = weights_of_blocks[number]
        else:
            weights = _weights(rows, keys[:, :, :stop], _visible(segment_ids, start, stop))
        beyond = [[0, 0], [0, 0], [0, 0], [0, length - stop]]
        value_gradient += tf.pad(tf.matmul(upstream_rows, weights, transpose_a=True), beyond)
        weight_gradient = tf.cast(tf.matmul(upstream_rows, values[:, :, :stop], transpose_b=True), tf.float32)
        difference = weight_gradient - _rows(row_means[:, :, :, start:stop])
        scores_gradient = tf.cast(tf.cast(weights, tf.float32) * difference * _scale(query), query.dtype)
        block_gradient = tf.matmul(scores_gradient, keys[:, :, :stop])
        query_gradients.append(tf.reshape(block_gradient, tf.shape(queries[:, :, :, start:stop])))
        key_gradient += tf.pad(tf.matmul(rows, scores_gradient, transpose_a=True), beyond)
    return (
        tf.ensure_shape(_by_position(tf.concat(query_gradients, axis=3)), query.shape),
        tf.ensure_shape(tf.transpose(key_gradient, [0, 3, 1, 2]), key.shape),
        tf.ensure_shape(tf.transpose(value_gradient, [0, 3, 1, 2]), value.shape),
    )


_compiled_forward = tf.function(_forward, jit_compile=True, autograph=False)
_compiled_backward = tf.function(_backward, jit_compile=True, autograph=False)


def _query_blocks(length: int) -> list[tuple[int, int]]:
    """Start and stop of each block of queries. A block sees the keys up to its own end only."""
    size = max(_SMALLEST_BLOCK, -(-length // _MOST_BLOCKS))
    return [(start, min(start + size, length)) for start in range(0, length, size)]


def _visible(segment_ids: tf.Tensor, start: int, stop: int) -> tf.Tensor:
    """[B, t, S] bool: which of the keys up to `stop` each query from `start` on sees."""
    same_segment = segment_ids[:, start:stop, None] == segment_ids[:, None, :stop]
    causal = tf.range(stop)[None, :] <= tf.range(start, stop)[:, None]
    return tf.logical_and(same_segment, causal)


def _weights(rows: tf.Tensor, keys: tf.Tensor, visible: tf.Tensor) -> tf.Tensor:
    """Softmax in float32: rows [B, K, G x t, E], keys [B, K, S, E], visible [B, t, S] -> [B, K, G x t, S]."""
    scores = tf.cast(tf.matmul(rows, keys, transpose_b=True), tf.float32) * _scale(rows)
    if visible.shape[1] == 1:  # a step of generation, in which all rows of a head are of one query
        return tf.cast(tf.nn.softmax(tf.where(visible[:, None], scores, _MASKED), axis=-1), keys.dtype)
    shape = tf.shape(scores)
    apart = [shape[0], shape[1], -1, tf.shape(visible)[1], shape[3]]  # [B, K, G, t, S]
    masked = tf.where(visible[:, None, None], tf.reshape(scores, apart), _MASKED)
    return tf.cast(tf.reshape(tf.nn.softmax(masked, axis=-1), shape), keys.dtype)


def _scale(features: tf.Tensor) -> float:
    return 1.0 / math.sqrt(features.shape[-1])


def _rows(features: tf.Tensor) -> tf.Tensor:
    """[B, K, G, t, X] -> [B, K, G x t, X]: the queries that share a head of keys, one after another."""
    batch, heads, groups, length, width = sizes_of(features)
    return reshape(features, [batch, heads, groups * length, width])


def _by_head(features: tf.Tensor, kv_heads: int) -> tf.Tensor:
    """[B, T, heads, E] -> [B, K, heads / K, T, E]."""
    batch, length, heads, head_dim = sizes_of(features)
    return reshape(tf.transpose(features, [0, 2, 1, 3]), [batch, kv_heads, heads // kv_heads, length, head_dim])


def _by_kv_head(features: tf.Tensor) -> tf.Tensor:
    """[B, S, K, E] -> [B, K, S, E]."""
    return tf.transpose(features, [0, 2, 1, 3])


def _by_position(features: tf.Tensor) -> tf.Tensor:
    """[B, K, G, T, E] -> [B, T, K * G, E]."""
    batch, kv_heads, groups, length, head_dim = sizes_of(features)
    return tf.transpose(reshape(features, [batch, kv_heads * groups, length, head_dim]), [0, 2, 1, 3])
