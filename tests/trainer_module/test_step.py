"""A step is one update from the mean over all predicted tokens, however its rows are cut."""

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer_module.conftest import random_rows
from trainer_module.config import TrainConfig
from trainer_module.parameters import parameter_table
from trainer_module.state import TrainState
from trainer_module.step import make_eval_step, make_train_step


def run_steps(model_config, rows, updates=3, seed=0, **settings):
    token_ids, segment_ids = rows
    # As a plain graph unless a test says otherwise: it compiles in a tenth of XLA's time.
    defaults = {"steps": 10, "warmup_steps": 0, "learning_rate": 1e-3, "compile": "graph"}
    train = TrainConfig(**{**defaults, "global_batch_size": len(token_ids), "seed": seed, **settings})
    state = TrainState(model_config, train)
    step = make_train_step(model_config, train, state)
    arrays = tf.constant(token_ids, tf.int32), tf.constant(segment_ids, tf.int32)
    results = [step(*arrays) for _ in range(updates)]
    return state, results


def assert_same_training(one, other):
    (state, results), (other_state, other_results) = one, other
    for result, other_result in zip(results, other_results, strict=True):
        np.testing.assert_allclose(result.loss, other_result.loss, atol=1e-6, rtol=1e-6)
        assert float(result.num_tokens) == float(other_result.num_tokens)
    for name, variable in state.params.items():
        np.testing.assert_allclose(variable, other_state.params[name], atol=1e-5, err_msg=name)


@pytest.mark.parametrize("parts", [2, 4])
def test_accumulation_equals_one_batch(tiny, parts):
    rows = random_rows(4, 16)
    assert_same_training(run_steps(tiny, rows), run_steps(tiny, rows, num_microbatches=parts))


def test_accumulation_over_as_many_microbatches_as_rows_equals_one_batch(tiny):
    rows = random_rows(128, 16)
    whole = run_steps(tiny, rows, updates=2)
    assert_same_training(whole, run_steps(tiny, rows, updates=2, num_microbatches=128))


def test_accumulation_compiled_by_xla_equals_one_batch_as_a_graph(tiny):
    rows = random_rows(4, 16)
    assert_same_training(run_steps(tiny, rows), run_steps(tiny, rows, num_microbatches=2, compile="xla"))


def test_accumulation_equals_one_batch_with_very_unequal_microbatches(tiny):
    """11 predicted tokens in one microbatch, 101 in the other: a mean of means would be wrong."""
    config = tiny.model_copy(update={"seq_len": 104})
    token_ids, segment_ids = random_rows(2, 104)
    segment_ids[:] = 1
    segment_ids[0, 12:] = 0
    segment_ids[1, 102:] = 0
    whole = run_steps(config, (token_ids, segment_ids))
    assert float(whole[1][0].num_tokens) == 112
    assert_same_training(whole, run_steps(config, (token_ids, segment_ids), num_microbatches=2))


def test_a_microbatch_without_tokens_changes_nothing(tiny):
    token_ids, segment_ids = random_rows(2, 16)
    padded = np.concatenate([token_ids, np.zeros_like(token_ids)]), np.concatenate([segment_ids, segment_ids * 0])
    assert_same_training(run_steps(tiny, (token_ids, segment_ids)), run_steps(tiny, padded, num_microbatches=2))


def test_no_token_at_all_gives_loss_zero_and_finite_weights(tiny):
    token_ids, segment_ids = random_rows(2, 16)
    state, results = run_steps(tiny, (token_ids, segment_ids * 0))
    assert [float(result.loss) for result in results] == [0.0, 0.0, 0.0]
    assert all(np.isfinite(variable).all() for variable in state.params.values())


def test_graph_and_xla_agree(tiny):
    rows = random_rows(4, 16)
    assert_same_training(run_steps(tiny, rows, compile="xla"), run_steps(tiny, rows, compile="graph"))


def test_loss_and_gradient_equal_automatic_differentiation_of_the_plain_loss(gpt2):
    from trainer_module import loss as losses
    from trainer_module import model
    from trainer_module.step import accumulate

    token_ids, segment_ids = (tf.constant(array, tf.int32) for array in random_rows(2, 16))
    params = {
        name: tf.convert_to_tensor(variable) for name, variable in TrainState(gpt2, TrainConfig(seed=3)).params.items()
    }
    sums = accumulate(gpt2, TrainConfig(), params, token_ids[None], segment_ids[None])
    with tf.GradientTape() as tape:
        tape.watch(params)
        targets, counted = losses.targets_of(token_ids, segment_ids)
        hidden = model.hidden_states(gpt2, params, token_ids[:, :-1], segment_ids[:, :-1])
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, model.output_logits(gpt2, params, hidden))
        expected = tf.reduce_sum(tf.where(counted, nll, 0.0))
    np.testing.assert_allclose(sums.loss, expected, rtol=1e-5)
    assert float(sums.num_tokens) == float(tf.reduce_sum(tf.cast(counted, tf.float32)))
    for name, gradient in tape.gradient(expected, params).items():
        np.testing.assert_allclose(sums.gradients[name], tf.convert_to_tensor(gradient), atol=1e-4, err_msg=name)


def test_decay_and_clipping_act_once_per_update(tiny):
    """With no gradient, only decay moves a weight: by exactly rate x decay, once, whatever the accumulation."""
    token_ids, segment_ids = random_rows(4, 16)
    settings = {"weight_decay": 0.5, "final_learning_rate": 1.0, "num_microbatches": 4}
    before = TrainState(tiny, TrainConfig())
    after, _ = run_steps(tiny, (token_ids, segment_ids * 0), **settings)
    for name, parameter in parameter_table(tiny).items():
        factor = (1 - 1e-3 * 0.5) ** 3 if parameter.decays else 1.0
        np.testing.assert_allclose(after.params[name], before.params[name] * factor, rtol=1e-6, err_msg=name)


def test_clipping_limits_the_norm_of_what_enters_the_moments(tiny):
    rows = random_rows(4, 16)
    state, results = run_steps(tiny, rows, updates=1, clip_norm=0.01)
    assert float(results[0].grad_norm) > 0.1  # reported before clipping
    moments = np.concatenate([np.ravel(moment) for moment in state.first_moments.values()])
    assert np.linalg.norm(moments) == pytest.approx(0.1 * 0.01, rel=1e-4)  # (1 - beta1) x the clipped norm


def test_training_learns_a_repeated_row(tiny):
    rows = random_rows(2, 16)
    _, results = run_steps(tiny, rows, updates=100, steps=110, learning_rate=1e-2)
    assert float(results[0].loss) == pytest.approx(np.log(300), abs=0.3)
    assert float(results[-1].loss) < 0.3


def test_evaluation_gives_the_loss_of_the_step_and_changes_nothing(tiny):
    rows = random_rows(4, 16)
    train = TrainConfig(steps=10, warmup_steps=0, global_batch_size=4, compile="graph")
    state = TrainState(tiny, train)
    arrays = [tf.constant(array, tf.int32) for array in rows]
    before = {name: variable.numpy() for name, variable in state.variables().items()}
    total, count = make_eval_step(tiny, train, state, 4)(*arrays)
    for name, variable in state.variables().items():
        np.testing.assert_array_equal(variable, before[name])
    result = make_train_step(tiny, train, state)(*arrays)
    np.testing.assert_allclose(total / count, result.loss, rtol=1e-5)
