"""Attention's hand-written gradient is that of the plain formula, for every way of computing it."""

import math

import numpy as np
import pytest
import tensorflow as tf

from trainer_module import attention


def plain(query, key, value, segment_ids):
    """The formula, by TensorFlow's own differentiation: [B, T, H, E]."""
    groups = query.shape[2] // key.shape[2]
    key, value = tf.repeat(key, groups, axis=2), tf.repeat(value, groups, axis=2)
    scores = tf.einsum("bthe,bshe->bhts", query, key) / math.sqrt(query.shape[3])
    length = query.shape[1]
    causal = tf.linalg.band_part(tf.ones([length, length], tf.bool), -1, 0)
    visible = (segment_ids[:, None, :, None] == segment_ids[:, None, None, :]) & causal
    return tf.einsum("bhts,bshe->bthe", tf.nn.softmax(tf.where(visible, scores, -1e30)), value)


def inputs(length=150, heads=4, kv_heads=2, seed=0):
    """150 positions make three blocks of queries, the last of them shorter."""
    random = np.random.default_rng(seed)
    shapes = [(2, length, heads, 8), (2, length, kv_heads, 8), (2, length, kv_heads, 8)]
    tensors = [tf.constant(random.normal(size=shape), tf.float32) for shape in shapes]
    segment_ids = tf.constant(np.sort(random.integers(1, 4, (2, length)), axis=1), tf.int32)
    return tensors, segment_ids, tf.constant(random.normal(size=shapes[0]), tf.float32)


def with_gradients(function, tensors, upstream):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        result = function(*tensors)
    return [result, *tape.gradient(result, tensors, upstream)]


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_result_and_gradients_equal_the_plain_formula(kv_heads, recompute, compiled):
    tensors, segment_ids, upstream = inputs(kv_heads=kv_heads)

    @tf.function(autograph=False)
    def ours():
        return with_gradients(
            lambda q, k, v: attention.packed_attention(q, k, v, segment_ids, recompute, compiled), tensors, upstream
        )

    expected = with_gradients(lambda q, k, v: plain(q, k, v, segment_ids), tensors, upstream)
    for actual, wanted in zip(ours(), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, atol=2e-5)


def test_a_document_gets_no_gradient_from_its_neighbours():
    tensors, _, upstream = inputs()
    segment_ids = tf.constant(np.repeat([[1] * 70 + [2] * 80], 2, axis=0), tf.int32)
    second = upstream * tf.cast(tf.range(150) >= 70, tf.float32)[None, :, None, None]
    gradients = with_gradients(lambda q, k, v: attention.packed_attention(q, k, v, segment_ids), tensors, second)[1:]
    for gradient in gradients:
        assert np.abs(gradient[:, :70]).max() == 0.0
        assert np.abs(gradient[:, 70:]).max() > 0.0


def test_blocks_cover_a_row_and_are_not_many():
    for length in (8, 64, 65, 256, 2048, 131_072):
        blocks = attention._query_blocks(length)
        assert [start for start, _ in blocks] == [0, *(stop for _, stop in blocks[:-1])]
        assert blocks[-1][1] == length
        assert len(blocks) <= 8
