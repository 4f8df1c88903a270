"""The digest of what was consumed: the same however a batch is divided, another for any other rows or order."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_module.consumption import SAID_SIZE, Said, chained, digest_of_rows, said_of

RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(0, 300, (12, 17)).astype(np.int32)
SEGMENTS = RANDOM.integers(0, 3, (12, 17)).astype(np.int32)
_2_64 = 1 << 64


@given(st.lists(st.integers(0, 12), max_size=4))
def test_any_division_of_a_batch_adds_up_to_the_same(cuts):
    edges = [0, *sorted(cuts), 12]
    parts = [digest_of_rows(TOKENS[start:end], SEGMENTS[start:end], start) for start, end in itertools.pairwise(edges)]
    assert sum(parts) % _2_64 == digest_of_rows(TOKENS, SEGMENTS, 0)


def test_every_token_every_segment_and_the_order_count():
    whole = digest_of_rows(TOKENS, SEGMENTS, 0)
    seen = {whole}
    for row in range(12):
        for column in range(17):
            for changed_tokens, changed_segments in ((1, 0), (0, 1)):
                tokens, segments = TOKENS.copy(), SEGMENTS.copy()
                tokens[row, column] += changed_tokens
                segments[row, column] += changed_segments
                seen.add(digest_of_rows(tokens, segments, 0))
    swapped = [1, 0, *range(2, 12)]
    seen.add(digest_of_rows(TOKENS[swapped], SEGMENTS[swapped], 0))
    seen.add(digest_of_rows(TOKENS, SEGMENTS, 1))
    assert len(seen) == 1 + 2 * 12 * 17 + 2


def test_the_chain_knows_in_which_step_rows_came():
    assert chained(chained(0, 5), 6) != chained(chained(0, 6), 5)
    assert chained(chained(0, 0), 1) != chained(0, 1)
    assert 0 <= chained(_2_64 - 1, _2_64 - 1) < _2_64


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2**30), st.integers(0, _2_64 - 1)), min_size=1, max_size=50))
def test_what_processes_say_adds_up_exactly(sayings):
    said = [Said(int(stop), 0.0, tokens, digest) for stop, tokens, digest in sayings]
    heard = Said.decode(np.sum([one.encode() for one in said], axis=0, dtype=np.float32))
    assert heard.stop_requests == sum(one.stop_requests for one in said)
    assert heard.num_tokens == sum(one.num_tokens for one in said)
    assert heard.rows_digest == sum(one.rows_digest for one in said) % _2_64


def test_the_chiefs_clock_is_heard_by_all():
    chief, other = Said(0, 1234.5, 1, 2), Said(0, 0.0, 3, 4)
    assert Said.decode(chief.encode() + other.encode()).seconds == pytest.approx(1234.5)
    assert chief.encode().shape == (SAID_SIZE,)


def test_filling_says_nothing():
    """A share of 4 rows of which 3 are rows: those beyond the batch are padding, and are not in the digest."""
    tokens, segments = TOKENS[:4].copy(), SEGMENTS[:4].copy()
    tokens[3:], segments[3:] = 0, 0
    said = said_of(tokens, segments, 8, 3, stop=False, seconds=0.0)
    assert said.rows_digest == digest_of_rows(TOKENS[:3], SEGMENTS[:3], 8)
    assert said == said_of(TOKENS[:3], SEGMENTS[:3], 8, 3, stop=False, seconds=0.0)
    assert said_of(tokens, segments, 8, 0, stop=False, seconds=0.0).rows_digest == 0
