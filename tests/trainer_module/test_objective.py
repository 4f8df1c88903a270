"""z-loss and label smoothing against the plain formula; running means of weights against their definition."""

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer_module.conftest import random_rows
from tests.trainer_module.test_step import run_steps
from trainer_module import loss as losses
from trainer_module.config import TrainConfig
from trainer_module.state import TrainState
from trainer_module.step import make_eval_step


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("smoothing", "z_loss"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.05), (0.2, 0.03)])
def test_the_gradient_is_that_of_the_objective_and_the_value_that_of_the_likelihood(smoothing, z_loss, fused):
    random = np.random.default_rng(0)
    hidden, head = (tf.constant(random.normal(size=shape), tf.float32) for shape in ((12, 8), (30, 8)))
    targets = tf.constant(random.integers(0, 30, 12), tf.int32)
    counted = tf.constant([True] * 9 + [False] * 3)

    @tf.function(autograph=False)
    def ours():
        with tf.GradientTape() as tape:
            tape.watch([hidden, head])
            objective = losses.Objective(smoothing, z_loss)
            value = losses.summed_loss(hidden, head, targets, counted, objective, fused)
        return value, tape.gradient(value, [hidden, head])

    with tf.GradientTape() as tape:
        tape.watch([hidden, head])
        log_probabilities = tf.nn.log_softmax(hidden @ tf.transpose(head))
        smooth = (1 - smoothing) * tf.one_hot(targets, 30) + smoothing / 30
        log_sum = tf.reduce_logsumexp(hidden @ tf.transpose(head), axis=1)
        each = -tf.reduce_sum(smooth * log_probabilities, axis=1) + z_loss * log_sum**2
        expected = tf.reduce_sum(tf.where(counted, each, 0.0))
    value, gradients = ours()
    likelihood = -tf.reduce_sum(tf.gather(log_probabilities, targets, batch_dims=1)[:9])
    np.testing.assert_allclose(value, likelihood, rtol=1e-5)
    for actual, wanted in zip(gradients, tape.gradient(expected, [hidden, head]), strict=True):
        np.testing.assert_allclose(actual, wanted, atol=2e-5)


def test_the_running_mean_follows_its_definition_and_is_what_counts(tiny):
    rows = random_rows(4, 16)
    expected = {name: value.numpy() for name, value in TrainState(tiny, TrainConfig()).params.items()}
    for updates in (1, 2, 3):
        reached, _ = run_steps(tiny, rows, updates=updates)
        expected = {name: 0.75 * value + 0.25 * reached.params[name].numpy() for name, value in expected.items()}
    state, _ = run_steps(tiny, rows, updates=3, ema_decay=0.75)
    for name, value in expected.items():
        np.testing.assert_allclose(state.averages[name], value, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(state.params[name], reached.params[name], atol=1e-7)
    assert state.result() is state.averages
    assert "averages/embedding" in state.variables()

    plain = TrainState(tiny, TrainConfig(compile="graph"))
    for name, value in expected.items():
        plain.params[name].assign(value)
    arrays = [tf.constant(array, tf.int32) for array in rows]
    of_mean = make_eval_step(tiny, TrainConfig(compile="graph", ema_decay=0.75), state, 4)(*arrays)
    np.testing.assert_allclose(
        of_mean, make_eval_step(tiny, TrainConfig(compile="graph"), plain, 4)(*arrays), rtol=1e-5
    )
