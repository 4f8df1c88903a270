"""A region gives what its function gives, and so do its gradients."""

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer_module.conftest import random_rows
from trainer_module import fusion
from trainer_module.config import TrainConfig
from trainer_module.state import TrainState
from trainer_module.step import accumulate


def scaled_product(left, numbers, right, power):
    """Two floating-point results, of which one does not depend on `right`; an integer argument between them."""
    picked = tf.gather(left, numbers)
    return picked * right**power, tf.exp(left)


def test_a_region_equals_its_function_and_skips_integers():
    left, right = tf.constant([0.5, 1.5, 2.5]), tf.constant([2.0, 3.0])
    numbers = tf.constant([2, 0])
    run = fusion.region(scaled_product, power=3)
    with tf.GradientTape() as tape:
        tape.watch([left, right])
        product, exponential = run(left, numbers, right)
        total = tf.reduce_sum(product) + tf.reduce_sum(exponential)
    np.testing.assert_allclose(product, [2.5 * 8, 0.5 * 27])
    of_left, of_right = tape.gradient(total, [left, right])
    np.testing.assert_allclose(of_left, np.exp([0.5, 1.5, 2.5]) + np.array([27.0, 0.0, 8.0]), rtol=1e-5)
    np.testing.assert_allclose(of_right, [2.5 * 3 * 4, 0.5 * 3 * 9], rtol=1e-5)


def test_layers_share_a_region_but_settings_do_not():
    assert fusion.region(scaled_product, power=2) is fusion.region(scaled_product, power=2)
    assert fusion.region(scaled_product, power=2) is not fusion.region(scaled_product, power=4)


@pytest.mark.parametrize("kind", ["tiny", "gpt2"])
def test_a_fused_step_has_the_gradients_of_the_graph(request, kind):
    config = request.getfixturevalue(kind)
    rows = [tf.constant(array[None], tf.int32) for array in random_rows(2, 16)]
    params = {name: tf.convert_to_tensor(value) for name, value in TrainState(config, TrainConfig()).params.items()}
    graph = accumulate(config, TrainConfig(compile="graph"), params, *rows)
    fused = tf.function(lambda: accumulate(config, TrainConfig(compile="fused"), params, *rows), autograph=False)()
    np.testing.assert_allclose(fused.loss, graph.loss, rtol=1e-6)
    for name, gradient in graph.gradients.items():
        np.testing.assert_allclose(fused.gradients[name], gradient, atol=2e-5, err_msg=name)
