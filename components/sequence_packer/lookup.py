"""Which documents are in a row, and which rows hold a document: questions to the side index."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foundation import tfrecord
from foundation.errors import ConfigError, CorpusError
from foundation.rows import PackingManifest


@dataclasses.dataclass(frozen=True)
class RowSegment:
    """A stretch of one document in one row."""

    row: int
    """Row of the split, counted through its shards."""

    segment: int
    """The number in the row's `segment_ids`."""

    doc_id: str
    source: str
    token_start: int
    """First token, counted in the document."""

    token_end: int
    """One past the last."""


def segments_of_row(folder: str | Path, row: int) -> list[RowSegment]:
    """The segments of row `row` of the split in `folder`, from left to right.

    Raises:
      ConfigError: the split has no such row.
      CorpusError: manifest or index missing or damaged.
    """
    manifest = PackingManifest.load(folder)
    shard, in_shard = locate_row(manifest, row)
    return _query(Path(folder), manifest.index_names[shard], row - in_shard, ("row", "=", in_shard))


def rows_of_document(folder: str | Path, doc_id: str) -> list[RowSegment]:
    """Where the tokens of `doc_id` are, in the document's order; empty if the split does not have it.

    Raises:
      CorpusError: manifest or index missing or damaged.
    """
    manifest = PackingManifest.load(folder)
    found = [
        segment
        for index_name, first_row in zip(manifest.index_names, _first_rows(manifest).tolist(), strict=False)
        for segment in _query(Path(folder), index_name, first_row, ("doc_id", "=", doc_id))
    ]
    return sorted(found, key=lambda segment: segment.token_start)


def read_row(folder: str | Path, row: int) -> tuple[np.ndarray, np.ndarray]:
    """token_ids and segment_ids of one row, each [seq_len + 1], by one seek.

    Raises:
      ConfigError: the split has no such row.
      CorpusError: manifest or shard missing or damaged.
    """
    manifest = PackingManifest.load(folder)
    shard, in_shard = locate_row(manifest, row)
    row_format = manifest.row_format
    path = Path(folder) / manifest.shard_names[shard]
    try:
        with path.open("rb") as file:
            file.seek(in_shard * row_format.record_bytes)
            payload = tfrecord.read_record(file, f"{path}, record {in_shard}")
    except FileNotFoundError as error:
        raise CorpusError(f"{path} is missing though packing.json names it; run SequencePacker again") from error
    if payload is None:
        raise CorpusError(f"{path} ends before record {in_shard}; run SequencePacker again")
    token_ids, segment_ids = row_format.decode(payload)
    return token_ids[0], segment_ids[0]


def locate_row(manifest: PackingManifest, row: int) -> tuple[int, int]:
    """The shard that holds row `row` of the split, and the row's place in it.

    Raises:
      ConfigError: the split has no such row.
    """
    if not 0 <= row < manifest.num_rows:
        raise ConfigError(
            f"split {manifest.split!r} has rows 0 to {manifest.num_rows - 1}; choose one of them. Received: row={row}"
        )
    first_rows = _first_rows(manifest)
    shard = int(np.searchsorted(first_rows, row, side="right")) - 1
    return shard, row - int(first_rows[shard])


def _first_rows(manifest: PackingManifest) -> np.ndarray:
    """First row of each shard, and one past the last row of all."""
    return np.concatenate([[0], np.cumsum(manifest.shard_rows)])


def _query(folder: Path, index_name: str, first_row: int, condition: tuple[str, str, Any]) -> list[RowSegment]:
    path = folder / index_name
    try:
        lines = pq.read_table(path, filters=[condition]).to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        raise CorpusError(f"{path} is missing or damaged ({error}); run SequencePacker again") from error
    return [RowSegment(**{**line, "row": first_row + line["row"]}) for line in lines]
