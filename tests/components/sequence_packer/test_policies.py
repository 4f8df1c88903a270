"""Where each policy puts documents, on cases small enough to check by eye, and against a plain best fit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.sequence_packer.policies import best_fit_decreasing, plan_rows
from foundation.errors import ConfigError
from tests.components.sequence_packer.corpora import properties

# (document, token_start, token_end, row, segment) of each segment, for rows of 4 tokens.
CASES = {
    "concat": ([3, 0, 5, 2], [(0, 0, 3, 0, 1), (2, 0, 1, 0, 2), (2, 1, 5, 1, 1), (3, 0, 2, 2, 1)]),
    "pad": ([3, 0, 5, 2], [(0, 0, 3, 0, 1), (2, 0, 4, 1, 1), (2, 4, 5, 2, 1), (3, 0, 2, 3, 1)]),
    "best_fit": (
        [3, 0, 5, 2, 1],
        # The 1 left of document 2 goes to the row with 1 free, not to the row with 2 free.
        [(2, 0, 4, 0, 1), (0, 0, 3, 1, 1), (2, 4, 5, 1, 2), (3, 0, 2, 2, 1), (4, 0, 1, 2, 2)],
    ),
}


@pytest.mark.parametrize("policy", CASES)
def test_plan_on_a_known_case(policy: str) -> None:
    lengths, expected = CASES[policy]
    plan = plan_rows(policy, np.array(lengths), row_len=4)
    columns = (plan.document, plan.token_start, plan.token_end, plan.row, plan.segment)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


@pytest.mark.parametrize("policy", CASES)
@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_nothing_to_pack_gives_no_rows(policy: str, lengths: list[int]) -> None:
    plan = plan_rows(policy, np.array(lengths, dtype=np.int64), row_len=4)
    assert plan.num_rows == 0
    assert plan.row.tolist() == []


@pytest.mark.parametrize("policy", CASES)
def test_a_document_of_exactly_one_row_is_not_cut(policy: str) -> None:
    plan = plan_rows(policy, np.array([4, 4]), row_len=4)
    assert plan.token_start.tolist() == [0, 0]
    assert plan.token_end.tolist() == [4, 4]
    assert plan.num_rows == 2


def test_unknown_policy_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="concat, best_fit, pad.*policy='greedy'"):
        plan_rows("greedy", np.array([1]), row_len=4)


@properties
@given(st.lists(st.integers(1, 12), max_size=60))
def test_best_fit_decreasing_equals_a_plain_search(sizes: list[int]) -> None:
    """The bit set finds the same fills as looking at every bin; no bin overflows."""
    capacity = 12
    bins, _ = best_fit_decreasing(np.array(sizes, dtype=np.int64), capacity)
    fills = [
        sum(size for size, chosen in zip(sizes, bins, strict=True) if chosen == b)
        for b in range(max(bins, default=-1) + 1)
    ]

    expected: list[int] = []
    for size in sorted(sizes, reverse=True):
        fitting = [b for b, fill in enumerate(expected) if fill + size <= capacity]
        if fitting:
            expected[max(fitting, key=lambda b: expected[b])] += size
        else:
            expected.append(size)
    assert sorted(fills) == sorted(expected)
