"""Dropout: the right share, the same for the same step, in training alone."""

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer_module.conftest import random_rows
from trainer_module import model
from trainer_module.config import TrainConfig
from trainer_module.state import TrainState
from trainer_module.step import make_eval_step, make_train_step


def test_the_share_is_right_and_the_mean_stays():
    dropped = model._dropout(tf.ones([100, 1000]), 0.3, tf.constant([1, 2])).numpy()
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.7)}
    assert np.mean(dropped == 0.0) == pytest.approx(0.3, abs=0.005)
    assert dropped.mean() == pytest.approx(1.0, abs=0.01)


def losses(config, steps, **settings):
    """Losses of steps with a learning rate too small to matter: what differs is what is dropped."""
    rows = [tf.constant(array, tf.int32) for array in random_rows(4, 16)]
    train = TrainConfig(
        **{
            "steps": 10,
            "warmup_steps": 0,
            "global_batch_size": 4,
            "learning_rate": 1e-9,
            "compile": "graph",
            **settings,
        }
    )
    state = TrainState(config, train)
    step = make_train_step(config, train, state)
    results = [float(step(*rows).loss) for _ in range(steps)]
    total, count = make_eval_step(config, train, state, 4)(*rows)
    return results, float(total) / float(count)


def test_steps_differ_and_the_seed_decides(tiny):
    config = tiny.model_copy(update={"dropout": 0.2})
    first, evaluated = losses(config, 3)
    again, _ = losses(config, 3)
    other, _ = losses(config, 3, seed=1)
    assert first == again
    assert len({round(loss, 7) for loss in first}) == 3
    assert first != other
    _, without = losses(tiny, 1)
    assert evaluated == pytest.approx(without, abs=1e-5)


def test_microbatches_drop_differently(tiny):
    """The same two rows in both microbatches: were their masks the same, the loss would be that of one alone."""
    config = tiny.model_copy(update={"dropout": 0.2})
    token_ids, segment_ids = random_rows(2, 16)
    train = TrainConfig(steps=10, warmup_steps=0, global_batch_size=4, num_microbatches=2, compile="graph")
    half = train.model_copy(update={"global_batch_size": 2, "num_microbatches": 1})
    twice = [tf.constant(np.concatenate([array, array]), tf.int32) for array in (token_ids, segment_ids)]
    once = [tf.constant(array, tf.int32) for array in (token_ids, segment_ids)]
    both = make_train_step(config, train, TrainState(config, train))(*twice)
    alone = make_train_step(config, half, TrainState(config, half))(*once)
    assert abs(float(both.loss) - float(alone.loss)) > 1e-5
