"""The column batch keeps documents together, and finds the two faults that documents can have."""

import numpy as np
import pytest

from components.sequence_packer.documents import DocumentBatch, order_key
from foundation.errors import CorpusError
from tests.components.sequence_packer.corpora import build_documents


def test_order_key_is_the_same_everywhere() -> None:
    """BLAKE2b-64, little-endian (b2sum -l 64): shards written today and next year are in one order."""
    assert order_key("a") == int.from_bytes(bytes.fromhex("40f89e395b66422f"), "little")
    assert order_key("가") == int.from_bytes(bytes.fromhex("4c07d58c85a8a169"), "little")


def test_take_moves_tokens_with_their_document() -> None:
    batch = build_documents({"a": [5, 6], "b": [], "c": [7, 8, 9]}, sources={"c": "code"})
    taken = batch.take(np.array([2, 1, 0]))
    assert taken.doc_ids.tolist() == ["c", "b", "a"]
    assert taken.sources.tolist() == ["code", "web", "web"]
    assert taken.token_ids.tolist() == [7, 8, 9, 5, 6]
    assert taken.lengths.tolist() == [3, 0, 2]
    assert taken.num_bytes.tolist() == [9, 0, 6]
    assert taken.order_keys.tolist() == [order_key("c"), order_key("b"), order_key("a")]


def test_concat_then_take_gives_the_parts_back() -> None:
    first, second = build_documents({"a": [1, 2]}), build_documents({"b": [3], "c": []})
    both = DocumentBatch.concat([first, second])
    assert both.doc_ids.tolist() == ["a", "b", "c"]
    assert both.token_ids.tolist() == [1, 2, 3]
    assert both.starts.tolist() == [0, 2, 3]


def test_packing_order_sorts_by_key() -> None:
    batch = build_documents({f"d{i}": [i] for i in range(20)})
    keys = batch.order_keys[batch.packing_order()].tolist()
    assert keys == sorted(keys)


def test_a_doc_id_twice_is_an_error_that_names_it() -> None:
    batch = DocumentBatch.concat([build_documents({"a": [1], "b": [2]}), build_documents({"a": [3]})])
    with pytest.raises(CorpusError, match="1 doc_id.*Received: doc_id='a'$"):
        batch.packing_order()


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({"a": [0, 99], "b": [], "c": [5]}, [False, False, False]),
        ({"a": [0, 99], "b": [], "c": [5, 100]}, [False, False, True]),
        ({"a": [-1], "b": [], "c": [100]}, [True, False, True]),
        ({"b": []}, [False]),
    ],
)
def test_out_of_vocab_finds_the_documents(tokens: dict[str, list[int]], expected: list[bool]) -> None:
    assert build_documents(tokens).out_of_vocab(100).tolist() == expected
