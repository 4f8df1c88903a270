"""The learning rate at points computed by hand; a pure function of the step."""

import math

import pytest
import tensorflow as tf

from trainer_module.config import TrainConfig
from trainer_module.schedule import learning_rate


def rate(step, **settings):
    config = TrainConfig(steps=110, warmup_steps=10, learning_rate=2.0, final_learning_rate=0.1, **settings)
    return float(learning_rate(config, tf.constant(step, tf.int64)))


@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd", "constant"])
def test_warm_up_is_a_straight_line_to_the_peak(schedule):
    assert [rate(step, schedule=schedule) for step in (1, 5, 10)] == pytest.approx([0.2, 1.0, 2.0])


@pytest.mark.parametrize(
    ("schedule", "step", "expected"),
    [
        ("cosine", 60, 0.2 + 1.8 * 0.5),
        ("cosine", 35, 0.2 + 1.8 * 0.5 * (1 + math.cos(math.pi / 4))),
        ("linear", 60, 0.2 + 1.8 * 0.5),
        ("linear", 35, 0.2 + 1.8 * 0.75),
        ("wsd", 60, 2.0),
        ("wsd", 88, 2.0),  # the last fifth of 110 steps begins after this one
        ("wsd", 99, 0.2 + 1.8 * 0.5),
        ("constant", 60, 2.0),
        ("constant", 110, 2.0),
    ],
)
def test_after_it_each_falls_in_its_own_way(schedule, step, expected):
    assert rate(step, schedule=schedule) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd"])
def test_the_last_step_has_the_final_rate_and_what_comes_after_too(schedule):
    assert rate(110, schedule=schedule) == pytest.approx(0.2, rel=1e-6)
    assert rate(500, schedule=schedule) == pytest.approx(0.2, rel=1e-6)


def test_wsd_falls_in_the_share_that_is_set():
    assert rate(55, schedule="wsd", decay_share=0.5) == pytest.approx(2.0)
    assert rate(82, schedule="wsd", decay_share=0.5) == pytest.approx(0.2 + 1.8 * 28 / 55, rel=1e-6)
