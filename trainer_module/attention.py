"""Attention over packed rows: causal, never across documents, positions counted within a document.

Notation: B batch, T queries, S keys, H heads, K heads of keys and values, G = H / K, E features per head.
"""

import math

import tensorflow as tf

from trainer_module.recompute import recomputed

QUERY_BLOCK = 128
"""Queries handled at once. A block sees the keys up to its own end only: the upper triangle is not computed."""

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


def rotate(features: tf.Tensor, phases: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """Turns feature pairs (i, i + E / 2) by their phases, in float32. [B, T, heads, E] -> the same shape and dtype."""
    cosine, sine = phases
    first, second = tf.split(tf.cast(features, tf.float32), 2, axis=-1)
    rotated = tf.concat([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
    return tf.cast(rotated, features.dtype)


def packed_attention(
    query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, segment_ids: tf.Tensor, recompute: bool = False
) -> tf.Tensor:
    """Causal attention within segments.

    Args:
      query: [B, T, H, E].
      key, value: [B, T, K, E].
      segment_ids: [B, T] int32.
      recompute: the backward pass computes the scores of a block of queries again instead of keeping them.

    Returns:
      [B, T, H, E]. Where a token is padding (segment 0) it attends to padding; nobody reads that.
    """
    length = query.shape[1]
    attend = recomputed(_attend) if recompute else _attend
    query, key, value = _by_head(query, key.shape[2]), _by_head(key, key.shape[2]), _by_head(value, key.shape[2])
    blocks = []
    for start in range(0, length, QUERY_BLOCK):
        stop = min(start + QUERY_BLOCK, length)
        same_segment = segment_ids[:, start:stop, None] == segment_ids[:, None, :stop]
        causal = tf.range(stop)[None, :] <= tf.range(start, stop)[:, None]
        visible = tf.logical_and(same_segment, causal)
        blocks.append(attend(query[:, :, :, start:stop], key[:, :, :, :stop], value[:, :, :, :stop], visible))
    return _by_position(tf.concat(blocks, axis=3))


def cached_attention(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, visible: tf.Tensor) -> tf.Tensor:
    """Attention of some queries to a cache of keys.

    Args:
      query: [B, T, H, E].
      key, value: [B, S, K, E].
      visible: [B, T, S] bool.

    Returns:
      [B, T, H, E].
    """
    kv_heads = key.shape[2]
    return _by_position(_attend(_by_head(query, kv_heads), _by_head(key, kv_heads), _by_head(value, kv_heads), visible))


def _attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, visible: tf.Tensor) -> tf.Tensor:
    """query [B, K, G, T, E], key and value [B, K, 1, S, E], visible [B, T, S] -> [B, K, G, T, E]; float32 softmax."""
    query *= tf.cast(1.0 / math.sqrt(query.shape[-1]), query.dtype)
    scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)
    scores = tf.where(visible[:, None, None], scores, _MASKED)
    weights = tf.cast(tf.nn.softmax(scores, axis=-1), value.dtype)
    return tf.matmul(weights, value)


def _by_head(features: tf.Tensor, kv_heads: int) -> tf.Tensor:
    """[B, T, heads, E] -> [B, K, heads / K, T, E]."""
    shape = tf.shape(features)
    heads, head_dim = features.shape[2], features.shape[3]
    transposed = tf.transpose(features, [0, 2, 1, 3])
    return tf.reshape(transposed, [shape[0], kv_heads, heads // kv_heads, shape[1], head_dim])


def _by_position(features: tf.Tensor) -> tf.Tensor:
    """[B, K, G, T, E] -> [B, T, K * G, E]."""
    shape = tf.shape(features)
    heads, head_dim = features.shape[1] * features.shape[2], features.shape[4]
    return tf.transpose(tf.reshape(features, [shape[0], heads, shape[3], head_dim]), [0, 2, 1, 3])
