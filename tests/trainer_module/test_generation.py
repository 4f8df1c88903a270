"""Cached generation is what the model would say, for each row as if it were alone."""

import numpy as np
import pytest
import tensorflow as tf

from trainer_module import generation, model
from trainer_module.generation import Sampling
from trainer_module.parameters import init

PROMPTS = [[2, 40, 50, 60, 70], [2], [2, 90, 91, 92, 93, 94, 95, 96]]


def sampling(batch, max_new=6, temperature=0.0, top_k=0, top_p=1.0, seed=0):
    def row(value, dtype):
        return tf.broadcast_to(tf.constant(value, dtype), [batch])

    return Sampling(
        row(max_new, tf.int32),
        row(temperature, tf.float32),
        row(top_k, tf.int32),
        row(top_p, tf.float32),
        row(seed, tf.int32),
    )


@pytest.fixture(params=["tiny", "gpt2"])
def model_and_params(request):
    config = request.getfixturevalue(request.param)
    random = np.random.default_rng(0)
    # Away from the initial values, where all logits are almost equal and the likeliest token is chance.
    params = {name: value + random.normal(0, 0.3, value.shape) for name, value in init(config, 1).items()}
    return config, {name: tf.cast(value, tf.float32) for name, value in params.items()}


def generate(model_and_params, prompts, **how):
    config, params = model_and_params
    ragged = tf.ragged.constant(prompts, dtype=tf.int32)
    return generation.generate(config, params, ragged, sampling(len(prompts), **how))


def full_forward_greedy(model_and_params, prompt, count):
    """Without a cache: the whole text again for every token."""
    config, params = model_and_params
    ids = list(prompt)
    for _ in range(count):
        token_ids = tf.constant([ids])
        hidden = model.hidden_states(config, params, token_ids, tf.ones_like(token_ids))
        ids.append(int(tf.argmax(model.output_logits(config, params, hidden)[0, -1])))
        if ids[-1] == 3:
            return ids[len(prompt) : -1]
    return ids[len(prompt) :]


def test_greedy_with_cache_equals_the_full_forward(model_and_params):
    made = generate(model_and_params, PROMPTS)
    expected = [full_forward_greedy(model_and_params, prompt, 6) for prompt in PROMPTS]
    assert made.token_ids.to_list() == expected
    assert made.prompt_tokens_dropped.numpy().tolist() == [0, 0, 0]


def test_sampled_rows_are_the_same_alone_and_in_a_batch(model_and_params):
    how = {"temperature": 1.0, "top_k": 50, "top_p": 0.95}
    seeds, lengths = [11, 12, 13], [3, 8, 5]
    together = generate(model_and_params, PROMPTS, seed=seeds, max_new=lengths, **how).token_ids.to_list()
    for row, prompt in enumerate(PROMPTS):
        alone = generate(model_and_params, [prompt], seed=seeds[row], max_new=lengths[row], **how)
        assert alone.token_ids.to_list() == [together[row]]
        assert len(together[row]) <= lengths[row]


def test_seeds_decide_the_text(model_and_params):
    texts = [
        generate(model_and_params, [PROMPTS[0]], temperature=1.0, seed=seed).token_ids.to_list() for seed in (1, 2, 1)
    ]
    assert texts[0] == texts[2] != texts[1]


def test_a_long_prompt_keeps_its_tail_and_says_so(model_and_params):
    long = [2, *range(10, 40)]
    made = generate(model_and_params, [long], max_new=6)
    assert made.prompt_tokens_dropped.numpy().tolist() == [31 - 10]  # context 16, 6 of it for the answer
    assert made.token_ids.to_list() == [full_forward_greedy(model_and_params, long[-10:], 6)]


def test_generation_never_exceeds_the_context(model_and_params):
    made = generate(model_and_params, [PROMPTS[0]], max_new=10_000, temperature=1.0, seed=5)
    assert made.token_ids.row_lengths().numpy()[0] <= 15
    assert made.prompt_tokens_dropped.numpy().tolist() == [4]


LOGITS = tf.math.log(tf.constant([[0.1, 0.4, 0.2, 0.3]]))


def picked(uniform, **how):
    how = {"temperature": 1.0, **how}
    return int(generation.pick(LOGITS, sampling(1, **how), tf.constant([uniform]))[0])


@pytest.mark.parametrize(
    ("how", "cases"),
    [
        ({}, {0.0: 1, 0.39: 1, 0.41: 3, 0.69: 3, 0.71: 2, 0.89: 2, 0.91: 0, 0.9999999: 0}),
        ({"temperature": 0.0}, {0.0: 1, 0.9999999: 1}),
        ({"top_k": 2}, {0.0: 1, 0.56: 1, 0.58: 3, 0.9999999: 3}),  # 4/7 = 0.571
        ({"top_k": 1}, {0.0: 1, 0.9999999: 1}),
        ({"top_k": 100}, {0.91: 0}),
        ({"top_p": 0.5}, {0.56: 1, 0.58: 3, 0.9999999: 3}),  # 0.4 < 0.5: the token that crosses stays
        ({"top_p": 0.0}, {0.0: 1, 0.9999999: 1}),  # the best one always stays
        ({"top_k": 3, "top_p": 0.5}, {0.0: 1, 0.9999999: 3}),  # of 4/9, 3/9, 2/9: the second crosses
        ({"temperature": 0.5}, {0.52: 1, 0.54: 3}),  # squared: 16 / 30 = 0.533
    ],
)
def test_picking_inverts_the_distribution_that_is_left(how, cases):
    assert {uniform: picked(uniform, **how) for uniform in cases} == cases
