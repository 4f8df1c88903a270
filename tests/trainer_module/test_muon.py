"""Muon: orthogonal updates for the matrices inside the blocks, AdamW for the rest."""

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer_module.conftest import random_rows
from tests.trainer_module.test_step import run_steps
from trainer_module import optimizer
from trainer_module.config import TrainConfig
from trainer_module.parameters import Parameter, parameter_table
from trainer_module.state import TrainState


@pytest.mark.parametrize("shape", [(64, 16), (16, 64), (32, 32)])
def test_singular_values_come_near_one(shape):
    matrix = tf.constant(np.random.default_rng(0).normal(size=shape) * 7, tf.float32)
    values = np.linalg.svd(optimizer.orthogonalize(matrix).numpy(), compute_uv=False)
    assert values.min() > 0.6 and values.max() < 1.3
    left, _, right = np.linalg.svd(matrix.numpy(), full_matrices=False)
    overlap = np.sum((left @ right) * optimizer.orthogonalize(matrix).numpy()) / min(shape)
    assert overlap > 0.85  # of the nearest orthogonal matrix itself it is 1


def test_a_zero_gradient_gives_no_number_that_is_none():
    assert np.all(optimizer.orthogonalize(tf.zeros([4, 8])).numpy() == 0.0)


def test_the_update_is_of_adamws_size_whatever_the_gradients():
    table = {"blocks/0/up": Parameter("blocks/0/up", (32, 64), ("embed", "mlp"), decays=True)}
    config = TrainConfig(optimizer="muon", weight_decay=0.0)
    gradient = tf.constant(np.random.default_rng(1).normal(size=(32, 64)) * 1e-6, tf.float32)
    zeros = {"blocks/0/up": tf.zeros([32, 64])}
    new = optimizer.optimize(
        config, table, tf.constant(1.0), tf.constant(1), zeros, {"blocks/0/up": gradient}, zeros, {}
    )
    assert np.sqrt(np.mean(np.square(new.params["blocks/0/up"]))) == pytest.approx(0.2, rel=0.25)
    assert new.second_moments == {}


def test_block_matrices_alone_take_it(tiny):
    config = TrainConfig(optimizer="muon")
    state = TrainState(tiny, config)
    table = parameter_table(tiny)
    taken = {name for name, parameter in table.items() if optimizer.takes_muon(config, parameter)}
    assert {name.split("/")[-1] for name in taken} == {"query", "key", "value", "out", "gate", "up", "down"}
    assert set(state.second_moments) == set(table) - taken
    assert set(state.first_moments) == set(table)


def test_an_untied_head_is_adamws(tiny):
    config = tiny.model_copy(update={"tie_embeddings": False})
    assert not optimizer.takes_muon(TrainConfig(optimizer="muon"), parameter_table(config)["head"])


def test_it_learns_and_decays(tiny):
    rows = random_rows(2, 16)
    _, results = run_steps(tiny, rows, updates=60, steps=70, learning_rate=1e-2, optimizer="muon")
    assert float(results[-1].loss) < 0.5 < float(results[0].loss)
    still = (rows[0], rows[1] * 0)
    before = TrainState(tiny, TrainConfig()).params["blocks/0/up"].numpy()
    after, _ = run_steps(tiny, still, optimizer="muon", weight_decay=0.5, final_learning_rate=1.0)
    np.testing.assert_allclose(after.params["blocks/0/up"], before * (1 - 1e-3 * 0.5) ** 3, rtol=1e-6)
