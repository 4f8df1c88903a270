"""Exact duplicates across the whole input: documents whose texts have the same SHA-256 (its first 128 bits)."""

import dataclasses
from pathlib import Path

import numpy as np

from ingest.report import MAX_EXAMPLES
from ingest.runs import SEQUENCE, TEXT_HASH_HIGH, TEXT_HASH_LOW, Run, StoredDocument, read_run

_KEEP_NAME = "keep.npy"

_DOCUMENTS_AT_A_TIME = 4_000_000
"""Documents whose hashes are sorted at once: some 200 MB."""


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """Which documents are copies of an earlier one. `keep` takes a byte a document, the rest nothing."""

    keep: list[np.ndarray]
    """For each run, [documents] bool: False for a copy."""

    count: int
    examples: list[str]
    """`copy = original`, the first few in the order of the input."""

    def save(self, folder: Path) -> None:
        """Writes `keep` for `load_keep`."""
        np.save(folder / _KEEP_NAME, np.concatenate(self.keep))


def load_keep(folder: Path, runs: list[Run]) -> list[np.ndarray]:
    """`Duplicates.keep`, mapped from the disk."""
    keep = np.load(folder / _KEEP_NAME, mmap_mode="r")
    ends = np.cumsum([run.num_documents for run in runs])
    return [keep[end - run.num_documents : end] for run, end in zip(runs, ends, strict=True)]


def keep_all(runs: list[Run]) -> Duplicates:
    """Nothing is a duplicate."""
    return Duplicates([np.ones(run.num_documents, dtype=bool) for run in runs], 0, [])


def find_duplicates(runs: list[Run]) -> Duplicates:
    """Of documents with the same text, the first of the input stays."""
    keep = keep_all(runs).keep
    count = 0
    examples: list[tuple[int, str]] = []
    total = sum(run.num_documents for run in runs)
    num_buckets = max(1, -(-total // _DOCUMENTS_AT_A_TIME))
    for bucket in range(num_buckets):
        keys, run_numbers, places = _bucket(runs, bucket, num_buckets)
        order = np.lexsort((keys[2], keys[1], keys[0]))
        same = np.zeros(len(order), dtype=bool)
        same[1:] = np.all(keys[:2, order[1:]] == keys[:2, order[:-1]], axis=0)
        copies = order[same]
        count += len(copies)
        for run_number in np.unique(run_numbers[copies]):
            keep[run_number][places[copies[run_numbers[copies] == run_number]]] = False
        # The original of a copy is the last one before it, in sorted order, that is no copy.
        originals = order[np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))][same]
        earliest = np.argsort(keys[2, copies])[:MAX_EXAMPLES]
        for copy, original in zip(copies[earliest], originals[earliest], strict=True):
            named = [_document(runs[run_numbers[i]], int(places[i])) for i in (copy, original)]
            examples.append((int(keys[2, copy]), f"{named[0].doc_id} = {named[1].doc_id}"))
    return Duplicates(keep, count, [text for _, text in sorted(examples)[:MAX_EXAMPLES]])


def _bucket(runs: list[Run], bucket: int, num_buckets: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Documents whose text hash falls into `bucket`: [3, n] (hash high, hash low, sequence), run numbers, places."""
    width = -(-(1 << 64) // num_buckets)
    lowest, highest = np.uint64(bucket * width), np.uint64(min((bucket + 1) * width, 1 << 64) - 1)
    keys, run_numbers, places = [np.empty((3, 0), np.uint64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for number, run in enumerate(runs):
        index = run.index()
        high = index[TEXT_HASH_HIGH]
        chosen = np.flatnonzero((high >= lowest) & (high <= highest))
        keys.append(index[[TEXT_HASH_HIGH, TEXT_HASH_LOW, SEQUENCE]][:, chosen])
        run_numbers.append(np.full(len(chosen), number, dtype=np.int64))
        places.append(chosen)
    return np.concatenate(keys, axis=1), np.concatenate(run_numbers), np.concatenate(places)


def _document(run: Run, place: int) -> StoredDocument:
    return next(read_run(run, place, place + 1, None))
