"""Narrow activations train like wide ones, and float16's loss scale does what it is for."""

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer_module.conftest import random_rows
from trainer_module import precision
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.state import TrainState
from trainer_module.step import Sums, make_train_step, update


def train(model_config, steps=50, **settings):
    """State, and the loss of every step, of a training on 4 rows."""
    rows = [tf.constant(array, tf.int32) for array in random_rows(4, model_config.seq_len)]
    defaults = {"steps": 100, "warmup_steps": 5, "global_batch_size": 4, "learning_rate": 3e-3, "compile": "graph"}
    config = TrainConfig(**{**defaults, **settings})
    state = TrainState(model_config, config)
    step = make_train_step(model_config, config, state)
    return state, [step(*rows) for _ in range(steps)]


def losses_of(results):
    return np.array([float(result.loss) for result in results])


@pytest.mark.parametrize(("kind", "bound"), [("bfloat16", 0.05), ("float16", 0.01)])
def test_fifty_steps_stay_near_float32(tiny, kind, bound):
    """The loss falls from 5.7 to about 2; bfloat16 has 8 bits of precision, float16 has 11."""
    _, wide = train(tiny)
    state, narrow = train(tiny, precision=kind)
    assert losses_of(wide)[-1] < losses_of(wide)[0] - 2.0
    assert np.abs(losses_of(narrow) - losses_of(wide)).max() < bound
    assert all(variable.dtype == tf.float32 for variable in state.params.values())


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("way", ["xla", "fused"])
def test_every_way_of_compiling_knows_the_precision(gpt2, kind, way):
    _, graph = train(gpt2, steps=3, precision=kind)
    _, other = train(gpt2, steps=3, precision=kind, compile=way)
    assert np.abs(losses_of(graph) - losses_of(other)).max() < 0.02


def sums_of(state, value):
    gradients = {name: tf.fill(variable.shape, value) for name, variable in state.params.items()}
    return Sums(tf.constant(3.0), tf.constant(2.0), gradients)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_an_overflow_skips_the_whole_update_and_halves_the_scale(tiny, bad):
    config = TrainConfig(precision="float16", initial_loss_scale=1024.0)
    state = TrainState(tiny, config)
    update(config, tiny, state, sums_of(state, 1.0))
    before = {name: variable.numpy() for name, variable in state.variables().items()}
    result = update(config, tiny, state, sums_of(state, bad))
    after = {name: variable.numpy() for name, variable in state.variables().items()}
    assert not np.isfinite(result.grad_norm)
    assert float(result.loss_scale) == 1024.0  # with which the gradient was computed
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {"step", "loss_scale", "finite_steps"}
    assert (after["loss_scale"], after["finite_steps"], after["num_updates"], after["step"]) == (512.0, 0, 1, 2)


def test_the_scale_doubles_after_enough_finite_steps(tiny):
    config = TrainConfig(precision="float16", initial_loss_scale=8.0, loss_scale_growth_steps=3)
    state = TrainState(tiny, config)
    scales = []
    for _ in range(7):
        update(config, tiny, state, sums_of(state, 1.0))
        scales.append(float(state.loss_scale.scale))
    assert scales == [8.0, 8.0, 16.0, 16.0, 16.0, 32.0, 32.0]


def test_the_scale_stays_within_its_bounds(tiny):
    config = TrainConfig(precision="float16", initial_loss_scale=2.0, loss_scale_growth_steps=1)
    state = TrainState(tiny, config)
    for _ in range(3):
        update(config, tiny, state, sums_of(state, np.inf))
    assert float(state.loss_scale.scale) == 1.0
    state.loss_scale.scale.assign(2.0**24)
    update(config, tiny, state, sums_of(state, 1.0))
    assert float(state.loss_scale.scale) == 2.0**24


def test_the_loss_scale_changes_no_update(tiny):
    """Scales are powers of two, so dividing by them again is exact."""
    states = []
    for scale in (1.0, 4096.0):
        config = TrainConfig(precision="float16", initial_loss_scale=scale)
        state = TrainState(tiny, config)
        factor = float(precision.gradient_factor(config, tiny, state.loss_scale))
        update(config, tiny, state, sums_of(state, 0.5 * factor))
        states.append(state)
    for name, variable in states[0].params.items():
        np.testing.assert_array_equal(variable, states[1].params[name])


def test_a_gradient_that_is_not_finite_changes_no_weight_in_float32_either(tiny):
    config = TrainConfig()
    state = TrainState(tiny, config)
    before = {name: variable.numpy() for name, variable in state.params.items()}
    update(config, tiny, state, sums_of(state, np.nan))
    for name, value in before.items():
        np.testing.assert_array_equal(state.params[name], value)
    assert (int(state.step), int(state.num_updates)) == (1, 0)


def test_only_matrices_of_blocks_are_narrow():
    from trainer_module.parameters import init, parameter_table

    config = ModelConfig(vocab_size=300, seq_len=16, num_layers=1, width=32, num_heads=4, qk_norm=True)
    cast = precision.cast_matrices(parameter_table(config), init(config, 0), tf.bfloat16)
    wide = {name for name, value in cast.items() if value.dtype == tf.float32}
    assert wide == {
        "embedding",
        "final_norm/scale",
        "blocks/0/attention_norm/scale",
        "blocks/0/mlp_norm/scale",
        "blocks/0/query_norm/scale",
        "blocks/0/key_norm/scale",
    }
