"""Gradient checkpointing changes what is kept, not what comes out."""

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer_module.conftest import random_rows
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.state import TrainState
from trainer_module.step import accumulate

POLICIES = [("attention", 1), ("full", 1), ("full", 2), ("full", 3)]


def deep(**settings):
    """Four blocks, so that stretches of 3 leave one that is shorter."""
    shape = {"vocab_size": 300, "seq_len": 16, "num_layers": 4, "width": 32, "num_heads": 4, "num_kv_heads": 2}
    return ModelConfig(**shape, **settings)


def sums(config, policy, blocks, dropout_seed=None, way="graph"):
    train = TrainConfig(gradient_checkpointing=policy, blocks_per_checkpoint=blocks, compile=way)
    rows = [tf.constant(array[None], tf.int32) for array in random_rows(2, 16)]
    params = {name: tf.convert_to_tensor(value) for name, value in TrainState(config, TrainConfig()).params.items()}
    run = tf.function(
        lambda: accumulate(config, train, params, *rows, dropout_seed=dropout_seed),
        autograph=False,
        jit_compile=way == "xla",
    )
    return run()


def assert_same(one, other):
    np.testing.assert_allclose(one.loss, other.loss, rtol=1e-6)
    for name, gradient in one.gradients.items():
        scale = max(1.0, float(np.abs(gradient).max()))
        np.testing.assert_allclose(other.gradients[name], gradient, atol=1e-6 * scale, err_msg=name)


@pytest.mark.parametrize(("policy", "blocks"), POLICIES)
@pytest.mark.parametrize(
    "settings", [{}, {"norm": "layernorm", "mlp": "gelu", "use_bias": True, "position": "learned"}]
)
def test_gradients_are_those_of_keeping_everything(settings, policy, blocks):
    config = deep(**settings)
    assert_same(sums(config, "none", 1), sums(config, policy, blocks))


@pytest.mark.parametrize(("policy", "blocks"), [("attention", 1), ("full", 2)])
def test_what_is_computed_again_drops_the_same(policy, blocks):
    config, seed = deep(dropout=0.3), tf.constant([7, 8])
    assert_same(sums(config, "none", 1, seed), sums(config, policy, blocks, seed))


@pytest.mark.parametrize("way", ["xla", "fused"])
def test_compiled_gradients_are_the_same_too(way):
    config = deep(qk_norm=True)
    assert_same(sums(config, "none", 1), sums(config, "full", 2, way=way))
