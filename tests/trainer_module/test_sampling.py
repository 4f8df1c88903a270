"""The picked token follows the distribution that is left, and the noise is noise."""

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer_module.test_generation import sampling
from trainer_module.sampling import check, gumbel_noise, pick

PROBABILITIES = np.array([0.1, 0.4, 0.2, 0.3])
LOGITS = np.concatenate([np.full(4, -50.0), np.log(PROBABILITIES)]).astype(np.float32)
"""The special tokens, then four pieces."""

ROWS = 20_000


def shares(logits=LOGITS, seen=(), **how):
    """How often each of the four pieces is picked, over many seeds."""
    how = {"temperature": 1.0, "seed": np.arange(ROWS), **how}
    mask = np.zeros(len(logits), bool)
    mask[list(seen)] = True
    picked = pick(
        tf.constant(np.tile(logits, (ROWS, 1))),
        sampling(ROWS, **how),
        tf.constant(np.tile(mask, (ROWS, 1))),
        tf.zeros([ROWS], tf.int32),
    ).numpy()
    assert picked.min() >= 3
    return np.bincount(picked, minlength=8)[4:] / ROWS


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, [0.1, 0.4, 0.2, 0.3]),
        ({"temperature": 0.0}, [0, 1, 0, 0]),
        ({"temperature": 1e-30}, [0, 1, 0, 0]),
        ({"temperature": 0.5}, [1 / 30, 16 / 30, 4 / 30, 9 / 30]),
        ({"temperature": 1e30}, [0.2, 0.2, 0.2, 0.2]),  # and eos, the fifth
        ({"top_k": 2}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 1}, [0, 1, 0, 0]),
        ({"top_k": 100}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_p": 0.5}, [0, 4 / 7, 0, 3 / 7]),  # 0.4 < 0.5: the token that crosses stays
        ({"top_p": 0.0}, [0, 1, 0, 0]),  # the best one always stays
        ({"top_k": 3, "top_p": 0.5}, [0, 4 / 7, 0, 3 / 7]),  # of 4/9, 3/9, 2/9: the second crosses
        ({"top_k": 3, "top_p": 0.8}, [0, 4 / 9, 2 / 9, 3 / 9]),
    ],
)
def test_picking_follows_the_distribution_that_is_left(how, expected):
    found = shares(**how)
    assert found == pytest.approx(expected, abs=0.015)  # 4 standard deviations of 20,000 draws
    assert (found[np.array(expected) == 0] == 0).all()


def test_a_token_that_was_seen_is_less_likely():
    logits = LOGITS + np.float32(3.0)  # of both signs where divided and multiplied
    logits[4:] = [2.0, -1.0, 0.5, 0.0]
    expected = np.exp([1.0, -2.0, 0.5, 0.0])
    logits[:4] = -50
    assert shares(logits, seen=(4, 5), penalty=2.0) == pytest.approx(expected / expected.sum(), abs=0.015)


def test_special_tokens_that_stand_for_no_text_are_never_picked():
    logits = np.zeros(8, np.float32)
    logits[:3] = 100.0
    found = shares(logits)
    assert found == pytest.approx([0.2] * 4, abs=0.015)  # the fifth is eos
    assert shares(logits, temperature=0.0).sum() == 0  # eos, the first of the equal ones


def test_noise_is_gumbel_and_depends_on_all_three():
    seeds, numbers = np.repeat(np.arange(-50, 50), 20), np.tile(np.arange(20), 100)
    noise = gumbel_noise(tf.constant(seeds, tf.int32), tf.constant(numbers, tf.int32), 50).numpy()
    assert np.isfinite(noise).all()
    uniform = np.exp(-np.exp(-noise.astype(np.float64)))
    counts, _ = np.histogram(uniform, 64, (0, 1))
    expected = uniform.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # chi-square, 63 degrees of freedom: 1 in 100,000
    for first, second in (
        (uniform[:, 1:], uniform[:, :-1]),
        (uniform[1:], uniform[:-1]),
        (uniform[20:], uniform[:-20]),
    ):
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.015
    assert len(np.unique(noise)) > 0.99 * noise.size


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"max_new": 0}, "max_new_tokens must be at least 1"),
        ({"temperature": float("inf")}, "temperature must be finite"),
        ({"top_p": float("nan")}, "top_p must lie between 0 and 1"),
        ({"penalty": 0.0}, "repetition_penalty must be finite and above 0"),
        ({"penalty": float("nan")}, "repetition_penalty must be finite and above 0"),
    ],
)
def test_impossible_settings_are_named(how, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        check(sampling(2, **how), tf.constant(2))
