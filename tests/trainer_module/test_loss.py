"""The chunked loss equals the plain one, in value and gradient, however it is cut."""

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer_module.conftest import random_rows
from trainer_module import loss as losses


def problem(tokens, seed=0):
    random = np.random.default_rng(seed)
    hidden = tf.constant(random.normal(size=(tokens, 8)), tf.float32)
    head = tf.constant(random.normal(size=(11, 8)), tf.float32)
    targets = tf.constant(random.integers(0, 11, tokens), tf.int32)
    counted = tf.constant(random.random(tokens) < 0.7)
    return hidden, head, targets, counted


def plain(hidden, head, targets, counted):
    logits = tf.matmul(hidden, head, transpose_b=True)
    nll = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    return tf.reduce_sum(tf.where(counted, nll, 0.0))


@pytest.mark.parametrize("chunk", [1, 5, 10, 12, 100])
def test_value_and_gradients_equal_the_plain_loss(chunk, monkeypatch):
    monkeypatch.setattr(losses, "CHUNK_TOKENS", chunk)
    hidden, head, targets, counted = problem(12)
    results = []
    for function in (losses.summed_loss, plain):
        with tf.GradientTape() as tape:
            tape.watch([hidden, head])
            value = 3.0 * function(hidden, head, targets, counted)  # an upstream gradient other than 1
        results.append([value, *tape.gradient(value, [hidden, head])])
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunk", [5, 100])
def test_token_losses_and_hits_equal_the_plain_ones(chunk, monkeypatch):
    monkeypatch.setattr(losses, "CHUNK_TOKENS", chunk)
    hidden, head, targets, counted = problem(12, seed=1)
    nll, hits = losses.token_losses(hidden, head, targets, counted)
    logits = hidden.numpy() @ head.numpy().T
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = np.where(counted, -log_p[np.arange(12), targets], 0)
    np.testing.assert_allclose(nll, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(hits, (logits.argmax(-1) == targets.numpy()) & counted.numpy())


def test_targets_never_cross_into_another_document_or_padding():
    token_ids = tf.constant([[2, 5, 3, 2, 6, 0, 0]])
    segment_ids = tf.constant([[1, 1, 1, 2, 2, 0, 0]])
    targets, counted = losses.targets_of(token_ids, segment_ids)
    assert targets.numpy().tolist() == [[5, 3, 2, 6, 0, 0]]
    assert counted.numpy().tolist() == [[True, True, False, True, False, False]]


def test_nothing_counted_gives_zero_loss_and_zero_gradient():
    hidden, head, targets, _ = problem(12)
    with tf.GradientTape() as tape:
        tape.watch([hidden, head])
        value = losses.summed_loss(hidden, head, targets, tf.zeros([12], tf.bool))
    assert float(value) == 0.0
    for gradient in tape.gradient(value, [hidden, head]):
        assert np.abs(gradient).max() == 0.0


def test_extreme_logits_stay_finite():
    hidden, head = tf.constant([[1e4, -1e4]]), tf.constant([[1.0, 0.0], [0.0, 1.0]])
    nll, _ = losses.token_losses(hidden, head, tf.constant([1]), tf.constant([True]))
    assert float(nll[0]) == pytest.approx(2e4)


def test_targets_are_counted_on_the_host_as_in_the_graph():
    _, segment_ids = random_rows(6, 16)
    _, counted = losses.targets_of(tf.constant(segment_ids), tf.constant(segment_ids))
    assert losses.count_targets(segment_ids) == np.count_nonzero(counted) > 0
