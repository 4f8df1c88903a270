"""Contracts of a packing, whatever the documents and the policy: nothing lost, nothing twice, nothing mixed."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.sequence_packer.packing import Packing, pack_documents
from foundation.rows import Ledger, RowFormat
from tests.components.sequence_packer.corpora import Tokens, build_documents, properties, random_tokens

POLICIES = ["concat", "best_fit", "pad"]

# Token values carry no meaning for the packer; small ones, without padding's 0, shrink well.
corpora = st.lists(st.lists(st.integers(1, 90), max_size=25), max_size=12).map(
    lambda documents: {f"doc-{i}": ids for i, ids in enumerate(documents)}
)


def pack(tokens: Tokens, policy: str, seq_len: int = 7) -> Packing:
    return pack_documents(build_documents(tokens), RowFormat(seq_len, "uint16"), policy)


def all_rows(packing: Packing) -> tuple[np.ndarray, np.ndarray]:
    return packing.rows(0, packing.num_rows)


@properties
@given(corpora, st.sampled_from(POLICIES), st.integers(1, 9))
def test_every_document_is_rebuilt_from_rows_and_index(tokens: Tokens, policy: str, seq_len: int) -> None:
    """Every token of every document is in exactly one place, in order."""
    packing = pack(tokens, policy, seq_len)
    token_ids, segment_ids = all_rows(packing)
    rebuilt: dict[str, list[int]] = {doc_id: [] for doc_id in tokens}
    lines = packing.index().to_pylist()
    for line in sorted(lines, key=lambda line: (line["doc_id"], line["token_start"])):
        part = token_ids[line["row"]][segment_ids[line["row"]] == line["segment"]].tolist()
        assert line["token_start"] == len(rebuilt[line["doc_id"]])
        assert line["token_end"] == line["token_start"] + len(part)
        rebuilt[line["doc_id"]] += part
    assert rebuilt == tokens
    assert np.count_nonzero(segment_ids) == sum(len(ids) for ids in tokens.values())


@properties
@given(corpora, st.sampled_from(POLICIES), st.integers(1, 9))
def test_rows_have_the_declared_shape(tokens: Tokens, policy: str, seq_len: int) -> None:
    """Segments count up from 1 without a gap, padding comes last and is pad everywhere, no row is empty."""
    packing = pack(tokens, policy, seq_len)
    token_ids, segment_ids = all_rows(packing)
    assert token_ids.shape == segment_ids.shape == (packing.num_rows, seq_len + 1)
    assert token_ids.dtype == segment_ids.dtype == np.uint16
    for row_tokens, row_segments in zip(token_ids, segment_ids, strict=True):
        filled = np.count_nonzero(row_segments)
        assert filled > 0
        steps = np.diff(row_segments[:filled].astype(int), prepend=0)
        assert steps[0] == 1
        assert set(steps.tolist()) <= {0, 1}
        assert not row_segments[filled:].any()
        assert not row_tokens[filled:].any()
    assert packing.num_pad_tokens == np.count_nonzero(segment_ids == 0)


@properties
@given(corpora, st.sampled_from(POLICIES), st.integers(1, 9))
def test_ledger_counts_what_came_and_balances(tokens: Tokens, policy: str, seq_len: int) -> None:
    ledger = pack(tokens, policy, seq_len).ledger
    ledger.check()
    num_tokens = sum(len(ids) for ids in tokens.values())
    num_empty = sum(not ids for ids in tokens.values())
    assert ledger == Ledger(
        documents_in=len(tokens),
        documents_packed=len(tokens) - num_empty,
        documents_dropped=num_empty,
        tokens_in=num_tokens,
        tokens_packed=num_tokens,
        bytes_in=3 * num_tokens,
        bytes_packed=3 * num_tokens,
        dropped_by_reason={"no_tokens": num_empty} if num_empty else {},
    )


@properties
@given(corpora, st.sampled_from(POLICIES), st.integers(1, 9))
def test_lost_targets_are_exactly_those_that_cuts_cost(tokens: Tokens, policy: str, seq_len: int) -> None:
    """Targets in the rows + lost targets = tokens that have a predecessor in their document."""
    packing = pack(tokens, policy, seq_len)
    _, segment_ids = all_rows(packing)
    targets = np.count_nonzero((segment_ids[:, 1:] == segment_ids[:, :-1]) & (segment_ids[:, 1:] != 0))
    assert targets + packing.num_lost_targets == sum(len(ids) - 1 for ids in tokens.values() if ids)


@properties
@given(corpora, st.sampled_from(POLICIES), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(tokens: Tokens, policy: str, random: Random) -> None:
    shuffled = list(tokens.items())
    random.shuffle(shuffled)
    first, second = pack(tokens, policy), pack(dict(shuffled), policy)
    for ours, theirs in zip(all_rows(first), all_rows(second), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert first.index().equals(second.index())


@properties
@given(corpora)
def test_best_fit_cuts_only_what_is_longer_than_a_row(tokens: Tokens) -> None:
    packing = pack(tokens, "best_fit", seq_len=7)
    assert packing.num_cut_documents == sum(len(ids) > 8 for ids in tokens.values())


@properties
@given(corpora)
def test_concat_pads_less_than_one_row(tokens: Tokens) -> None:
    assert 0 <= pack(tokens, "concat", seq_len=7).num_pad_tokens < 8


@properties
@given(corpora)
def test_pad_puts_one_document_in_a_row(tokens: Tokens) -> None:
    _, segment_ids = all_rows(pack(tokens, "pad"))
    assert set(segment_ids.ravel().tolist()) <= {0, 1}


def test_concat_on_a_known_corpus() -> None:
    """Documents in the order of their hashes ("b" before "a" before "c"), cut at row ends."""
    documents = build_documents({"a": [11, 12, 13], "b": [21, 22, 23], "c": [31, 32, 33]})
    documents = type(documents)(**{**vars(documents), "order_keys": np.array([2, 1, 3], dtype=np.uint64)})
    packing = pack_documents(documents, RowFormat(3, "uint16"), "concat")
    token_ids, segment_ids = all_rows(packing)
    assert token_ids.tolist() == [[21, 22, 23, 11], [12, 13, 31, 32], [33, 0, 0, 0]]
    assert segment_ids.tolist() == [[1, 1, 1, 2], [1, 1, 2, 2], [1, 0, 0, 0]]
    assert packing.num_cut_documents == 2
    assert packing.num_lost_targets == 2
    assert packing.num_pad_tokens == 3


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_of_any_block_equal_those_of_the_whole(policy: str) -> None:
    packing = pack(random_tokens(count=40, seed=3), policy)
    token_ids, segment_ids = all_rows(packing)
    for first in range(0, packing.num_rows, 3):
        last = min(first + 3, packing.num_rows)
        block_tokens, block_segments = packing.rows(first, last)
        np.testing.assert_array_equal(block_tokens, token_ids[first:last])
        np.testing.assert_array_equal(block_segments, segment_ids[first:last])


def test_tokens_by_source_add_up() -> None:
    documents = build_documents(
        {"a": [1] * 10, "b": [2] * 3, "c": [], "d": [4]}, {"a": "code", "b": "web", "d": "code"}
    )
    packing = pack_documents(documents, RowFormat(3, "uint16"), "concat")
    assert packing.tokens_by_source == {"code": 11, "web": 3}


def test_65537_pieces_need_wider_rows() -> None:
    """The highest id of the vocabulary survives on both sides of the limit of uint16."""
    for vocab_size, dtype in ((65_536, "uint16"), (65_537, "uint32")):
        row_format = RowFormat.for_vocab(3, vocab_size)
        assert row_format.dtype == dtype
        packing = pack_documents(build_documents({"a": [vocab_size - 1]}), row_format, "concat")
        token_ids, segment_ids = row_format.decode(row_format.encode(*all_rows(packing)).tobytes())
        assert token_ids.tolist() == [[vocab_size - 1, 0, 0, 0]]
        assert segment_ids.tolist() == [[1, 0, 0, 0]]
