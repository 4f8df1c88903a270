"""Similarity is that of word 5-grams, and near duplicates are found across shards."""

from pathlib import Path

import numpy as np
import pytest

from foundation.tfrecord import frame_one
from ingest.documents import Document
from ingest.examples import encode
from ingest.near_duplicates import find_near_duplicates, signature, write_signatures
from ingest.runs import StoredDocument

WORDS = [f"w{number}" for number in range(1000)]
BASE = " ".join(WORDS[:300])
NEAR = " ".join([*WORDS[:150], "changed", *WORDS[151:300]])
"""One word differs: 5 of 296 5-grams are lost and 5 are new, Jaccard 291 / 301."""

FAR = " ".join(WORDS[500:800])


def stored(doc_id: str, text: str) -> StoredDocument:
    document = Document(doc_id, text.encode(), "s", "")
    return StoredDocument(doc_id, "s", "", len(text), frame_one(encode(document)))


def similarity(first: str, second: str) -> float:
    return float(np.mean(signature(first.encode()) == signature(second.encode())))


def test_signatures_estimate_jaccard_similarity() -> None:
    assert similarity(BASE, BASE) == 1.0
    assert similarity(BASE, NEAR) == pytest.approx(291 / 301, abs=0.09)
    assert similarity(BASE, FAR) < 0.05
    assert similarity(" ".join(WORDS[:300]), " ".join(WORDS[150:450])) == pytest.approx(146 / 446, abs=0.15)


def test_a_text_shorter_than_a_shingle_has_a_signature_of_its_own() -> None:
    assert similarity("two words", "two  words\n") == 1.0
    assert similarity("two words", "two birds") < 0.05


def test_near_duplicates_are_found_across_shards(tmp_path: Path) -> None:
    paths = [tmp_path / "0.npy", tmp_path / "1.npy"]
    write_signatures(paths[0], [stored("base", BASE), stored("far", FAR)])
    write_signatures(paths[1], [stored("near", NEAR), stored("alone", " ".join(WORDS[850:])), stored("same", BASE)])
    found = find_near_duplicates(paths, 0.8)
    assert found.count == 2
    assert found.examples[0] == "same ~ base (1.00)"
    assert found.examples[1].startswith("near ~ base (0.9")


def test_candidates_below_the_threshold_are_no_near_duplicates(tmp_path: Path) -> None:
    """Pairs of Jaccard similarity 0.6: a fifth share a band at threshold 0.7, few are estimated above it."""
    pairs = []
    for number in range(60):
        words = [f"p{number}w{place}" for place in range(204)]
        pairs.append((" ".join(words), " ".join([*words[50:], *(f"{word}x" for word in words[:50])])))
    documents = [stored(f"{number}{side}", pair[side]) for number, pair in enumerate(pairs) for side in (0, 1)]
    write_signatures(tmp_path / "0.npy", documents)
    assert find_near_duplicates([tmp_path / "0.npy"], 0.7).count <= sum(similarity(*pair) >= 0.7 for pair in pairs) < 5


@pytest.mark.parametrize("threshold", [0.97, 1.0])
def test_a_similarity_too_high_for_bands_is_compared_all_the_same(tmp_path: Path, threshold: float) -> None:
    path = tmp_path / "s.npy"
    np.save(path, np.stack([signature(b"a b c d e f"), signature(b"g h i j k l m n"), signature(b"a b c  d e f")]))
    path.with_suffix(".ids.json").write_text('["a", "b", "c"]')
    found = find_near_duplicates([path], threshold)
    assert (found.count, found.examples) == (1, ["c ~ a (1.00)"])


def test_many_copies_are_not_compared_all_with_all(tmp_path: Path) -> None:
    write_signatures(tmp_path / "0.npy", [stored(f"d{number}", BASE) for number in range(300)])
    assert find_near_duplicates([tmp_path / "0.npy"], 0.9).count == 299
