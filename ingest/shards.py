"""Shards: which documents each holds, and its writing. The same documents give the same bytes, however they came."""

import dataclasses
import hashlib
import itertools
import os
from pathlib import Path

import numpy as np

from foundation.documents import DOCUMENT_FILE_PREFIX
from foundation.errors import CorpusError
from ingest.dedup import Duplicates, load_keep
from ingest.near_duplicates import write_signatures
from ingest.report import MAX_EXAMPLES
from ingest.runs import DOC_HASH, FRAME_BYTES, Run, StoredDocument, load_runs, read_run

_BUCKET_BITS = 16
"""Hashes are dealt out by their first bits: fine enough to give shards of even size, few enough to count in memory."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """A finished shard."""

    name: str
    num_documents: int
    num_bytes: int
    """Size of the file."""

    text_bytes: int
    sha256: str
    text_bytes_by_source: dict[str, int]
    clashes: list[str]
    """Different documents with one id, the first few: the ingest fails."""


@dataclasses.dataclass(frozen=True)
class ShardTask:
    """Writes one shard."""

    path: str
    runs_folder: str
    """Holds what `save_runs` and `Duplicates.save` wrote: too much to be sent with each of many tasks."""

    low: int
    high: int
    signatures_path: str | None
    """Where MinHash signatures go; None: not wanted."""

    def run(self) -> Shard:
        runs = load_runs(Path(self.runs_folder))
        keep = load_keep(Path(self.runs_folder), runs)
        documents = collect(runs, keep, self.low, self.high)
        if self.signatures_path is not None:
            write_signatures(Path(self.signatures_path), documents)
        return write_shard(Path(self.path), documents)


def plan_shards(runs: list[Run], duplicates: Duplicates, shard_bytes: int) -> list[tuple[int, int]]:
    """Ranges of document hashes, one for each shard: [low, high], both inclusive, none without a document."""
    num_buckets = 1 << _BUCKET_BITS
    sizes = np.zeros(num_buckets, dtype=np.int64)
    for run, keep in zip(runs, duplicates.keep, strict=True):
        index = run.index()
        buckets = (index[DOC_HASH][keep] >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)
        np.add.at(sizes, buckets, index[FRAME_BYTES][keep].astype(np.int64))
    total = int(sizes.sum())
    num_shards = max(1, -(-total // shard_bytes))
    occupied = np.flatnonzero(sizes)
    before = (np.cumsum(sizes) - sizes)[occupied]
    # A bucket goes where its first byte lies on a ruler from 0 to total with num_shards marks.
    _, firsts = np.unique(before.astype(object) * num_shards // total, return_index=True)
    starts = [0, *(int(occupied[first]) for first in firsts[1:])]
    width = 1 << (64 - _BUCKET_BITS)
    return [(start * width, end * width - 1) for start, end in zip(starts, [*starts[1:], num_buckets], strict=True)]


def shard_name(number: int, count: int) -> str:
    return f"{DOCUMENT_FILE_PREFIX}-{number:05d}-of-{count:05d}.tfrecord"


def collect(runs: list[Run], keep: list[np.ndarray], low: int, high: int) -> list[StoredDocument]:
    """The documents of a shard, in order of doc_id."""
    documents: list[StoredDocument] = []
    for run, kept in zip(runs, keep, strict=True):
        hashes = run.index()[DOC_HASH]
        first = int(np.searchsorted(hashes, np.uint64(low), side="left"))
        last = int(np.searchsorted(hashes, np.uint64(high), side="right"))
        documents.extend(read_run(run, first, last, kept))
    return sorted(documents, key=lambda document: (document.doc_id, document.where))


def write_shard(path: Path, documents: list[StoredDocument]) -> Shard:
    """Writes sorted documents as a TFRecord file, forced to the disk."""
    digest = hashlib.sha256()
    by_source: dict[str, int] = {}
    with path.open("wb") as file:
        for document in documents:
            file.write(document.frame)
            digest.update(document.frame)
            by_source[document.source] = by_source.get(document.source, 0) + document.text_bytes
        file.flush()
        os.fsync(file.fileno())
    clashes = [
        f"{first.doc_id!r}: {first.where} and {second.where}"
        for first, second in itertools.pairwise(documents)
        if first.doc_id == second.doc_id
    ]
    return Shard(
        name=path.name,
        num_documents=len(documents),
        num_bytes=sum(len(document.frame) for document in documents),
        text_bytes=sum(document.text_bytes for document in documents),
        sha256=digest.hexdigest(),
        text_bytes_by_source=by_source,
        clashes=clashes[:MAX_EXAMPLES],
    )


def check_unique(shards: list[Shard]) -> None:
    """Raises CorpusError, naming both places, if two documents have one id."""
    clashes = [clash for shard in shards for clash in shard.clashes]
    if clashes:
        shown = "\n".join(f"  {clash}" for clash in clashes[:5])
        raise CorpusError(
            f"doc_id must be unique, and is not:\n{shown}\nnothing was written; mend the ids, leave id_field out "
            "so that ids are made, or rename one of the folders if the ids are paths"
        )
