"""AdamW and the schedule, against values computed by hand and an independent implementation."""

import math

import numpy as np
import pytest
import tensorflow as tf

from trainer_module import optimizer
from trainer_module.config import TrainConfig
from trainer_module.parameters import Parameter
from trainer_module.schedule import learning_rate


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (1, 0.1),  # one tenth of the way up
        (5, 0.5),
        (10, 1.0),  # the peak
        (60, 0.2 + 0.8 * 0.5),  # halfway down the cosine
        (35, 0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi / 4))),
        (110, 0.2),  # the last step
        (500, 0.2),
    ],
)
def test_learning_rate_rises_peaks_and_falls(step, expected):
    config = TrainConfig(steps=110, warmup_steps=10, learning_rate=1.0, final_learning_rate=0.2)
    assert float(learning_rate(config, tf.constant(step))) == pytest.approx(expected, abs=1e-6)


def test_without_warm_up_the_first_step_is_near_the_peak():
    config = TrainConfig(steps=100, warmup_steps=0, learning_rate=1.0, final_learning_rate=0.0)
    assert float(learning_rate(config, tf.constant(1))) == pytest.approx(0.99975, abs=1e-4)


def test_global_norm_is_over_all_values():
    assert float(optimizer.global_norm({"a": tf.constant([3.0]), "b": tf.constant([[0.0, 4.0]])})) == 5.0


def test_adamw_equals_the_paper_over_several_steps():
    config = TrainConfig(steps=50, warmup_steps=2, learning_rate=0.1, weight_decay=0.5, beta2=0.99, epsilon=1e-4)
    table = {
        "matrix": Parameter("matrix", (3, 2), ("embed", "mlp"), decays=True),
        "norm": Parameter("norm", (3,), ("embed",)),
    }
    random = np.random.default_rng(0)
    params = {name: random.normal(size=parameter.shape) for name, parameter in table.items()}
    mine = {name: tf.constant(value, tf.float32) for name, value in params.items()}
    first = second = {name: tf.zeros(parameter.shape) for name, parameter in table.items()}
    m = v = {name: np.zeros(parameter.shape) for name, parameter in table.items()}
    for step in range(1, 8):
        gradients = {name: random.normal(size=parameter.shape) for name, parameter in table.items()}
        tensors = {name: tf.constant(value, tf.float32) for name, value in gradients.items()}
        rate = float(learning_rate(config, tf.constant(step)))
        mine, first, second = optimizer.optimize(
            config, table, tf.constant(rate), tf.constant(step), mine, tensors, first, second
        )
        m = {name: 0.9 * m[name] + 0.1 * g for name, g in gradients.items()}
        v = {name: 0.99 * v[name] + 0.01 * g**2 for name, g in gradients.items()}
        for name in params:
            if name == "matrix":
                params[name] = params[name] - rate * 0.5 * params[name]
            m_hat, v_hat = m[name] / (1 - 0.9**step), v[name] / (1 - 0.99**step)
            params[name] = params[name] - rate * m_hat / (np.sqrt(v_hat) + 1e-4)
    for name in params:
        np.testing.assert_allclose(mine[name], params[name], rtol=1e-5, atol=1e-6)
