"""Cached generation is what the model would say, for each row as if it were alone."""

import numpy as np
import pytest
import tensorflow as tf

from trainer_module import generation, model
from trainer_module.parameters import init
from trainer_module.sampling import Sampling

PROMPTS = [[2, 40, 50, 60, 70], [2], [2, 90, 91, 92, 93, 94, 95, 96]]


def sampling(batch, max_new=6, temperature=0.0, top_k=0, top_p=1.0, penalty=1.0, seed=0):
    def row(value, dtype):
        return tf.broadcast_to(tf.constant(value, dtype), [batch])

    return Sampling(
        row(max_new, tf.int32),
        row(temperature, tf.float32),
        row(top_k, tf.int32),
        row(top_p, tf.float32),
        row(penalty, tf.float32),
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
    return generation.generate(config, params, ragged(prompts), sampling(len(prompts), **how))


def texts(state):
    return generation.generated_ids(state).to_list()


def ragged(prompts):
    return tf.ragged.constant(prompts, dtype=tf.int32, ragged_rank=1)


def full_logits(model_and_params, ids):
    """Without a cache: logits after each of the ids, [N, V]."""
    config, params = model_and_params
    token_ids = tf.constant([ids])
    hidden = model.hidden_states(config, params, token_ids, tf.ones_like(token_ids))
    return model.output_logits(config, params, hidden)[0].numpy()


def full_forward_greedy(model_and_params, prompt, count, penalty=1.0):
    """Without a cache: the whole text again for every token."""
    ids = list(prompt)
    for _ in range(count):
        logits = full_logits(model_and_params, ids)[-1]
        for seen in set(ids):
            logits[seen] = logits[seen] / penalty if logits[seen] > 0 else logits[seen] * penalty
        logits[:3] = -np.inf  # pad, unk, bos: no text
        ids.append(int(logits.argmax()))
        if ids[-1] == 3:
            return ids[len(prompt) : -1]
    return ids[len(prompt) :]


def test_greedy_with_cache_equals_the_full_forward(model_and_params):
    made = generate(model_and_params, PROMPTS)
    expected = [full_forward_greedy(model_and_params, prompt, 6) for prompt in PROMPTS]
    assert texts(made) == expected
    assert made.prompt_tokens.numpy().tolist() == [5, 1, 8]
    assert made.prompt_tokens_dropped.numpy().tolist() == [0, 0, 0]


def test_cached_logits_equal_the_full_forward_at_every_position(model_and_params, monkeypatch):
    """In a batch of different lengths, with prompts fed in several parts, up to the end of the context."""
    monkeypatch.setattr(generation, "PREFILL_TOKENS", 3)
    config, params = model_and_params
    state = generation.prefill(
        config, params, ragged(PROMPTS), sampling(3, max_new=99, temperature=1.0, seed=[1, 2, 3])
    )
    compared = 0
    for _ in range(config.seq_len):
        made = texts(state)
        for row, prompt in enumerate(PROMPTS):
            if state.finish[row] in (generation.GOING_ON, generation.AT_CONTEXT):
                expected = full_logits(model_and_params, prompt + made[row])[-1]
                assert np.abs(state.logits[row].numpy() - expected).max() < 1e-4
                compared += 1
        state = generation.decode(config, params, state, tf.constant(1))
    assert compared > 20
    assert (state.finish != generation.GOING_ON).numpy().all()


@pytest.mark.parametrize("at_once", [1, 3, 5, 128])
def test_a_prompt_is_read_the_same_in_parts(model_and_params, monkeypatch, at_once):
    monkeypatch.setattr(generation, "PREFILL_TOKENS", at_once)
    config, params = model_and_params
    state = generation.prefill(config, params, ragged(PROMPTS), sampling(3))
    for row, prompt in enumerate(PROMPTS):
        assert np.abs(state.logits[row].numpy() - full_logits(model_and_params, prompt)[-1]).max() < 1e-4
        assert np.flatnonzero(state.seen[row]).tolist() == sorted(prompt)


def test_sampled_rows_are_the_same_alone_and_in_a_batch(model_and_params):
    how = {"temperature": 1.0, "top_k": 50, "top_p": 0.95, "penalty": 1.2}
    seeds, lengths = [11, 12, 13], [3, 8, 5]
    together = texts(generate(model_and_params, PROMPTS, seed=seeds, max_new=lengths, **how))
    for row, prompt in enumerate(PROMPTS):
        alone = generate(model_and_params, [prompt], seed=seeds[row], max_new=lengths[row], **how)
        assert texts(alone) == [together[row]]
        assert len(together[row]) <= lengths[row]


def test_rows_with_other_settings_beside_them_are_the_same(model_and_params):
    """A row that samples from all tokens, beside one that is greedy and one with top-p."""
    settings = [(1.0, 1.0, 5), (0.0, 1.0, 5), (0.7, 0.8, 6)]
    temperature, top_p, seed = (list(values) for values in zip(*settings, strict=True))
    together = texts(generate(model_and_params, [PROMPTS[0]] * 3, temperature=temperature, top_p=top_p, seed=seed))
    for row, (warm, p, number) in enumerate(settings):
        alone = generate(model_and_params, [PROMPTS[0]], temperature=warm, top_p=p, seed=number)
        assert texts(alone) == [together[row]]


def test_seeds_decide_the_text(model_and_params):
    made = [texts(generate(model_and_params, [PROMPTS[0]], temperature=1.0, seed=seed)) for seed in (1, 2, 1)]
    assert made[0] == made[2] != made[1]


def test_tokens_come_the_same_however_the_steps_are_cut(model_and_params):
    config, params = model_and_params
    how = sampling(3, max_new=[7, 2, 9], temperature=1.0, seed=[1, 2, 3])
    whole = generation.generate(config, params, ragged(PROMPTS), how)
    state = generation.prefill(config, params, ragged(PROMPTS), how)
    for num_steps in (1, 0, 3, 2, 16):
        before = texts(state)
        state = generation.decode(config, params, state, tf.constant(num_steps))
        assert all(
            after[: len(earlier)] == earlier and len(after) <= len(earlier) + num_steps
            for earlier, after in zip(before, texts(state), strict=True)
        )
    assert texts(state) == texts(whole)
    assert state.finish.numpy().tolist() == whole.finish.numpy().tolist()


def test_a_row_stops_at_eos_and_is_frozen(model_and_params):
    """The eos is made the likeliest token of one row alone, by what the others have seen."""
    config, params = model_and_params
    state = generation.prefill(config, params, ragged(PROMPTS), sampling(3, max_new=4))
    logits = state.logits.numpy()
    logits[1, 3] = 1e4
    state = generation.decode(config, params, state._replace(logits=tf.constant(logits)), tf.constant(1))
    assert state.finish.numpy().tolist() == [0, generation.AT_EOS, 0]
    frozen = [state.logits[1].numpy(), state.seen[1].numpy()]
    state = generation.decode(config, params, state, tf.constant(16))
    assert state.finish.numpy()[1] == generation.AT_EOS and state.num_tokens.numpy()[1] == 0
    assert (state.logits[1].numpy() == frozen[0]).all() and (state.seen[1].numpy() == frozen[1]).all()
    assert state.token_ids[1].numpy().tolist() == [0] * 4
    expected = [full_forward_greedy(model_and_params, PROMPTS[row], 4) for row in (0, 2)]
    assert [texts(state)[row] for row in (0, 2)] == expected


def test_a_repetition_penalty_is_that_of_the_paper(model_and_params):
    """Below 1 it is a reward, which changes even a text that does not repeat itself."""
    made = texts(generate(model_and_params, PROMPTS, penalty=0.2))
    assert made == [full_forward_greedy(model_and_params, prompt, 6, penalty=0.2) for prompt in PROMPTS]
    assert made != texts(generate(model_and_params, PROMPTS))


def test_a_long_prompt_keeps_its_tail_and_says_so(model_and_params):
    long = [2, *range(10, 40)]
    made = generate(model_and_params, [long], max_new=6)
    assert made.prompt_tokens_dropped.numpy().tolist() == [31 - 10]  # context 16, 6 of it for the answer
    assert made.prompt_tokens.numpy().tolist() == [10]
    assert texts(made) == [full_forward_greedy(model_and_params, long[-10:], 6)]


def test_more_tokens_than_the_context_holds_end_with_it(model_and_params):
    """A short prompt stays whole; a long one keeps half of the context."""
    short, long = PROMPTS[0], [2, *range(10, 40)]
    state = generate(model_and_params, [short, long], max_new=2**31 - 1, temperature=1.0, seed=5)
    assert state.prompt_tokens.numpy().tolist() == [5, 8]
    assert state.prompt_tokens_dropped.numpy().tolist() == [0, 23]
    for finish, count, most in zip(state.finish.numpy(), state.num_tokens.numpy(), (11, 8), strict=True):
        assert (finish, count) == (generation.AT_CONTEXT, most) or (finish == generation.AT_EOS and count < most)
    assert generation.AT_CONTEXT in state.finish.numpy()


def test_a_batch_of_nothing_gives_nothing(model_and_params):
    config, params = model_and_params
    none = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int32), tf.constant([0], tf.int64))
    assert texts(generation.generate(config, params, none, sampling(0))) == []
