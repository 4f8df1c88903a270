"""The model computes what its papers say, and documents in a row do not see each other."""

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer_module.conftest import random_rows
from trainer_module import attention, model
from trainer_module.config import ModelConfig
from trainer_module.parameters import count_parameters, init, parameter_table


def logits_of(config, params, token_ids, segment_ids):
    hidden = model.hidden_states(config, params, tf.constant(token_ids, tf.int32), tf.constant(segment_ids, tf.int32))
    return model.output_logits(config, params, hidden).numpy()


def noisy(params, seed=0):
    """Parameters away from their special initial values (norms of 1, biases of 0), as NumPy arrays."""
    random = np.random.default_rng(seed)
    return {name: value.numpy() + random.normal(0, 0.2, value.shape).astype("f4") for name, value in params.items()}


def gpt2_in_numpy(params, token_ids, num_layers, num_heads, epsilon):
    """GPT-2's forward pass for one document [T], written from the paper, in float64: [T, V]."""
    params = {name: value.astype("f8") for name, value in params.items()}

    def layer_norm(x, name):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + epsilon) * params[f"{name}/scale"] + params[f"{name}/bias"]

    length = len(token_ids)
    x = params["embedding"][token_ids] + params["position"][:length]
    for layer in range(num_layers):
        weights = {key: params[f"blocks/{layer}/{key}"] for key in ("query", "key", "value", "out", "up", "down")}
        biases = {key: params[f"blocks/{layer}/{key}_bias"] for key in ("query", "key", "value", "out", "up", "down")}
        h = layer_norm(x, f"blocks/{layer}/attention_norm")
        mixed = np.zeros((length, num_heads, weights["query"].shape[2]))
        for head in range(num_heads):
            q, k, v = (h @ weights[key][:, head] + biases[key][head] for key in ("query", "key", "value"))
            for t in range(length):
                scores = q[t] @ k[: t + 1].T / np.sqrt(q.shape[1])
                p = np.exp(scores - scores.max())
                mixed[t, head] = (p / p.sum()) @ v[: t + 1]
        x = x + np.einsum("the,hed->td", mixed, weights["out"]) + biases["out"]
        h = layer_norm(x, f"blocks/{layer}/mlp_norm") @ weights["up"] + biases["up"]
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + h @ weights["down"].T + biases["down"]
    return layer_norm(x, "final_norm") @ params["embedding"].T


def test_gpt2_equals_an_independent_implementation(gpt2):
    params = noisy(init(gpt2, seed=1))
    token_ids = np.random.default_rng(2).integers(4, 300, 16)
    expected = gpt2_in_numpy(params, token_ids, gpt2.num_layers, gpt2.num_heads, gpt2.norm_epsilon)
    actual = logits_of(gpt2, params, token_ids[None], np.ones((1, 16)))[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["tiny", "gpt2"])
def test_a_document_has_the_logits_that_it_has_alone(kind, request):
    """Packing changes nothing: not its neighbours, not where in the row it lies."""
    config = request.getfixturevalue(kind)
    params = noisy(init(config, seed=0))
    token_ids, _ = random_rows(1, 15)
    first, second = token_ids[:, :6], token_ids[:, 6:13]
    segments = np.array([[1] * 6 + [2] * 7 + [0] * 3])
    packed = logits_of(config, params, token_ids, segments)
    np.testing.assert_allclose(packed[:, :6], logits_of(config, params, first, np.ones((1, 6))), atol=2e-5)
    np.testing.assert_allclose(packed[:, 6:13], logits_of(config, params, second, np.ones((1, 7))), atol=2e-5)


def test_the_future_changes_nothing(tiny):
    params = noisy(init(tiny, seed=0))
    token_ids, _ = random_rows(1, 15)
    changed = token_ids.copy()
    changed[:, 10:] = 7
    before, after = (logits_of(tiny, params, ids, np.ones((1, 16))) for ids in (token_ids, changed))
    np.testing.assert_array_equal(before[:, :10], after[:, :10])
    assert np.abs(before[:, 10:] - after[:, 10:]).max() > 0.01


def test_positions_restart_with_every_segment():
    segment_ids = tf.constant([[1, 1, 1, 2, 3, 3, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1]])
    expected = [[0, 1, 2, 0, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5, 6, 7]]
    assert attention.document_positions(segment_ids).numpy().tolist() == expected


def test_attention_in_blocks_of_queries_equals_attention_at_once(monkeypatch):
    random = np.random.default_rng(0)
    query, key, value = (tf.constant(random.normal(size=(2, 20, heads, 8)), tf.float32) for heads in (4, 2, 2))
    segment_ids = tf.constant(np.sort(random.integers(1, 4, (2, 20)), axis=1), tf.int32)
    whole = attention.packed_attention(query, key, value, segment_ids)
    monkeypatch.setattr(attention, "_SMALLEST_BLOCK", 7)
    np.testing.assert_allclose(attention.packed_attention(query, key, value, segment_ids), whole, atol=1e-6)


def test_rotation_keeps_lengths_and_depends_on_distance_alone():
    random = np.random.default_rng(0)
    left, right = (tf.constant(random.normal(size=(1, 1, 1, 8)), tf.float32) for _ in range(2))

    def score(left_at, right_at):
        turned = [
            attention.rotate(x, *attention.rope_phases(tf.constant([[at]]), 8, 10_000.0))
            for x, at in ((left, left_at), (right, right_at))
        ]
        np.testing.assert_allclose(tf.norm(turned[0]), tf.norm(left), rtol=1e-5)
        return float(tf.reduce_sum(turned[0] * turned[1]))

    assert score(3, 1) == pytest.approx(score(103, 101), abs=1e-4)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-3)


def test_the_published_model_has_its_published_size():
    gpt2_small = ModelConfig(
        vocab_size=50_257,
        seq_len=1024,
        num_layers=12,
        width=768,
        num_heads=12,
        norm="layernorm",
        position="learned",
        mlp="gelu",
        use_bias=True,
    )
    assert count_parameters(gpt2_small) == 124_439_808


def test_only_matrices_inside_blocks_decay(gpt2):
    decaying = {name.split("/")[-1] for name, parameter in parameter_table(gpt2).items() if parameter.decays}
    assert decaying == {"query", "key", "value", "out", "up", "down"}


def test_initial_values_depend_on_seed_and_name_alone(tiny):
    deeper = tiny.model_copy(update={"num_layers": 3})
    one, again, other, more = init(tiny, 5), init(tiny, 5), init(tiny, 6), init(deeper, 5)
    name = "blocks/1/query"
    np.testing.assert_array_equal(one[name], again[name])
    np.testing.assert_array_equal(one[name], more[name])
    assert np.abs(one[name] - other[name]).max() > 0.01
    assert np.abs(one[name] - one["blocks/0/query"]).max() > 0.01
    assert float(tf.math.reduce_std(one["embedding"])) == pytest.approx(0.02, rel=0.03)
    assert float(tf.math.reduce_std(one["blocks/0/up"])) == pytest.approx(0.02, rel=0.05)
    assert float(tf.math.reduce_std(one["blocks/0/down"])) == pytest.approx(0.01, rel=0.05)  # 0.02 / sqrt(2 x 2)
