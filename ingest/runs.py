"""Runs: documents on the disk, sorted by the hash of their ids, with an index in memory's reach.

This is ingest's shuffle. Beam's local runner holds everything that passes a GroupByKey in memory,
so the texts do not pass one: readers write runs, writers of shards pick from every run the range
of hashes that is theirs (an external merge sort). What Beam carries is the names of the runs.
"""

import dataclasses
import hashlib
import itertools
import json
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from foundation.tfrecord import frame_one
from ingest.documents import Document
from ingest.examples import encode

RUN_BYTES = 64 << 20
"""Documents that a reader holds before it sorts and writes them. Bounds its memory."""

DOC_HASH, TEXT_HASH_HIGH, TEXT_HASH_LOW, SEQUENCE, OFFSET, FRAME_BYTES = range(6)
"""Rows of an index. SEQUENCE orders documents as the input has them; OFFSET is that of the record in the run."""

_LIST_NAME = "runs.json"
_HEADER = struct.Struct("<IIIQQ")
"""Lengths of doc_id, source, where; bytes of the text; bytes of the frame. They follow, but for the text."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run."""

    path: str
    num_documents: int
    num_bytes: int

    def index(self) -> np.ndarray:
        """[6, documents] uint64, mapped from the disk, sorted by DOC_HASH, then SEQUENCE."""
        return np.load(f"{self.path}.npy", mmap_mode="r")


@dataclasses.dataclass(frozen=True)
class StoredDocument:
    """A document as it lies in a run."""

    doc_id: str
    source: str
    where: str
    text_bytes: int

    frame: bytes
    """The whole TFRecord record."""


class RunWriter:
    """Takes documents in, writes runs; one for each reading task."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._records: list[bytes] = []
        self._keys: list[tuple[int, int, int, int, int]] = []
        self._held_bytes = 0
        self._runs: list[Run] = []

    def add(self, document: Document, sequence: int) -> None:
        """`sequence`: place in the whole input."""
        doc_id, source, where = document.doc_id.encode(), document.source.encode(), document.where.encode()
        frame = frame_one(encode(document))
        header = _HEADER.pack(len(doc_id), len(source), len(where), len(document.text), len(frame))
        record = b"".join((header, doc_id, source, where, frame))
        text_hash = hashlib.sha256(document.text).digest()
        self._keys.append(
            (
                doc_hash(doc_id),
                int.from_bytes(text_hash[:8], "big"),
                int.from_bytes(text_hash[8:16], "big"),
                sequence,
                len(frame),
            )
        )
        self._records.append(record)
        self._held_bytes += len(record)
        if self._held_bytes >= RUN_BYTES:
            self._flush()

    def finish(self) -> list[Run]:
        """Writes what is left; all runs."""
        if self._records:
            self._flush()
        return self._runs

    def _flush(self) -> None:
        doc_hashes, high, low, sequence, frame_bytes = np.array(self._keys, dtype=np.uint64).T
        order = np.lexsort((sequence, doc_hashes))
        lengths = np.array([len(record) for record in self._records], dtype=np.uint64)[order]
        offsets = np.cumsum(lengths) - lengths
        index = np.stack([doc_hashes[order], high[order], low[order], sequence[order], offsets, frame_bytes[order]])
        # A name of its own: should Beam run a task twice, only the runs that the finished one reports are read.
        path = self._folder / f"{uuid.uuid4().hex}.run"
        try:
            with path.open("wb") as file:
                file.writelines(self._records[i] for i in order)
            np.save(f"{path}.npy", index)
        except OSError:
            path.unlink(missing_ok=True)  # On a full disk this makes the room in which to say so.
            raise
        self._runs.append(Run(str(path), len(self._records), int(lengths.sum())))
        self._records, self._keys, self._held_bytes = [], [], 0


def doc_hash(doc_id: bytes) -> int:
    """64 bits that decide a document's shard: a function of its id alone."""
    return int.from_bytes(hashlib.sha256(doc_id).digest()[:8], "big")


def save_runs(folder: Path, runs: list[Run]) -> None:
    """Writes the list for `load_runs`."""
    (folder / _LIST_NAME).write_text(json.dumps([dataclasses.asdict(run) for run in runs]), encoding="utf-8")


def load_runs(folder: Path) -> list[Run]:
    return [Run(**fields) for fields in json.loads((folder / _LIST_NAME).read_text(encoding="utf-8"))]


def read_run(run: Run, first: int, last: int, keep: np.ndarray | None) -> Iterator[StoredDocument]:
    """Documents number `first` to `last` (exclusive) of a run; those where `keep` (of all the run's) is true."""
    if first == last:
        return
    offsets = run.index()[OFFSET]
    start = int(offsets[first])
    end = int(offsets[last]) if last < run.num_documents else run.num_bytes
    with open(run.path, "rb") as file:
        file.seek(start)
        data = memoryview(file.read(end - start))
    for number in range(first, last):
        if keep is None or keep[number]:
            yield _parse(data[int(offsets[number]) - start :])


def _parse(record: memoryview) -> StoredDocument:
    id_len, source_len, where_len, text_bytes, frame_bytes = _HEADER.unpack_from(record)
    ends = np.cumsum([_HEADER.size, id_len, source_len, where_len, frame_bytes]).tolist()
    doc_id, source, where, frame = (bytes(record[a:b]) for a, b in itertools.pairwise(ends))
    return StoredDocument(doc_id.decode(), source.decode(), where.decode(), text_bytes, frame)
