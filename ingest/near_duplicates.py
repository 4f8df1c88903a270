"""Near duplicates: documents that share most of their word 5-grams, found by MinHash and reported.

Signatures come from datasketch and stay on the disk. Candidates share a band of their
signatures (locality-sensitive hashing); bands are compared one at a time by sorting, so memory
holds 16 bytes a document, where an index of all bands would hold kilobytes.
"""

import dataclasses
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from foundation.documents import TEXT
from foundation.tfrecord import FRAME_BYTES_AFTER, FRAME_BYTES_BEFORE
from ingest.examples import decode
from ingest.report import MAX_EXAMPLES
from ingest.runs import StoredDocument

NUM_PERMUTATIONS = 128
"""Length of a signature: the estimated similarity is off by about 1 / sqrt(128), 0.09."""

_SHINGLE_WORDS = 5
_COMPARED_AT_A_TIME = 65_536
_MAX_BANDED_SIMILARITY = 0.95
"""Above it datasketch finds too few bands for candidates, or none; those of a lower threshold are compared instead."""

_MIX = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so multiplication by it loses nothing: the golden ratio's bits, as hash functions use them."""


@dataclasses.dataclass(frozen=True)
class NearDuplicates:
    """What was found."""

    count: int
    """Documents that are nearly the same as one before them (in the order of the shards)."""

    examples: list[str]
    """`document ~ document (similarity)`, the most alike first."""


def write_signatures(path: Path, documents: Sequence[StoredDocument]) -> None:
    """Signatures of a shard's documents, [documents, NUM_PERMUTATIONS] uint32 in `path`, their ids beside it."""
    signatures = np.stack([signature(_text(document)) for document in documents])
    np.save(path, signatures)
    _ids_path(path).write_text(json.dumps([document.doc_id for document in documents]), encoding="utf-8")


def signature(text: bytes) -> np.ndarray:
    """[NUM_PERMUTATIONS] uint32: the MinHash of the text's word 5-grams. Equal texts give equal signatures."""
    from datasketch import MinHash  # Brings SciPy with it, which an ingest without near duplicates can spare.

    words = text.split()
    shingles = {
        b" ".join(words[start : start + _SHINGLE_WORDS]) for start in range(max(1, len(words) - _SHINGLE_WORDS + 1))
    }
    minhash = MinHash(num_perm=NUM_PERMUTATIONS, hashfunc=zlib.crc32, scheme="affine32")
    minhash.update_batch(list(shingles))
    return minhash.hashvalues


def find_near_duplicates(paths: Sequence[Path], similarity: float) -> NearDuplicates:
    """Compares the documents of all shards.

    Args:
      paths: what `write_signatures` wrote, in the order of the shards.
      similarity: estimated Jaccard similarity from which two documents are near duplicates.
    """
    from datasketch import MinHashLSH

    # Chooses bands for the threshold.
    layout = MinHashLSH(threshold=min(similarity, _MAX_BANDED_SIMILARITY), num_perm=NUM_PERMUTATIONS)
    shards = [np.load(path, mmap_mode="r") for path in paths]
    ends = np.cumsum([len(shard) for shard in shards])
    total = int(ends[-1])
    best = np.zeros(total, dtype=np.float32)
    partner = np.full(total, -1, dtype=np.int64)
    for band in range(layout.b):
        for first, second in _candidates(shards, band * layout.r, (band + 1) * layout.r):
            agreeing = _rows(shards, ends, first) == _rows(shards, ends, second)
            alike = np.asarray(agreeing.mean(axis=1), dtype=np.float32)
            better = (alike >= similarity) & (alike > best[second])
            best[second[better]] = alike[better]
            partner[second[better]] = first[better]
    found = np.flatnonzero(partner >= 0)
    shown = found[np.argsort(-best[found], kind="stable")][:MAX_EXAMPLES]
    examples = [
        f"{_doc_id(paths, ends, int(i))} ~ {_doc_id(paths, ends, int(partner[i]))} ({best[i]:.2f})" for i in shown
    ]
    return NearDuplicates(len(found), examples)


def _candidates(shards: list[np.ndarray], start: int, end: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs of document numbers (first < second) that agree in columns start to end of their signatures.

    Of many that agree, each is paired with the first and with the one before it, not all with all.
    """
    keys = np.concatenate([_band_keys(shard[:, start:end]) for shard in shards])
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    same = np.zeros(len(order), dtype=bool)
    same[1:] = ordered[1:] == ordered[:-1]
    members = np.flatnonzero(same)
    heads = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))[members]
    for partners in (heads, members - 1):
        for at in range(0, len(members), _COMPARED_AT_A_TIME):
            part = slice(at, at + _COMPARED_AT_A_TIME)
            # No document is in it twice, so a vectorised update per document is safe.
            yield order[partners[part]], order[members[part]]


def _band_keys(columns: np.ndarray) -> np.ndarray:
    """[documents] uint64: equal for equal rows, rarely for others, and those fail the comparison that follows."""
    keys = np.zeros(len(columns), dtype=np.uint64)
    for column in columns.T:
        keys = (keys ^ column) * _MIX
        keys ^= keys >> np.uint64(32)
    return keys


def _rows(shards: list[np.ndarray], ends: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Signatures of documents by their number over all shards."""
    rows = np.empty((len(numbers), NUM_PERMUTATIONS), dtype=np.uint32)
    which = np.searchsorted(ends, numbers, side="right")
    for shard_number in np.unique(which):
        chosen = which == shard_number
        start = ends[shard_number] - len(shards[shard_number])
        rows[chosen] = shards[shard_number][numbers[chosen] - start]
    return rows


def _doc_id(paths: Sequence[Path], ends: np.ndarray, number: int) -> str:
    shard = int(np.searchsorted(ends, number, side="right"))
    ids = json.loads(_ids_path(paths[shard]).read_text(encoding="utf-8"))
    return ids[number - int(ends[shard])]  # Counted back from the shard's end.


def _ids_path(path: Path) -> Path:
    return path.with_suffix(".ids.json")


def _text(document: StoredDocument) -> bytes:
    return decode(document.frame[FRAME_BYTES_BEFORE:-FRAME_BYTES_AFTER])[TEXT][0]
