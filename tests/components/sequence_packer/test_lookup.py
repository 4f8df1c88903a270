"""The side index answers both ways, through several shards."""

from pathlib import Path

import pytest

from components.sequence_packer import lookup, shards
from components.sequence_packer.packing import pack_documents
from foundation.errors import ConfigError, CorpusError
from foundation.rows import Ledger
from tests.components.sequence_packer.corpora import build_documents
from tests.components.sequence_packer.test_shards import ROW_FORMAT, description, make_packing


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """Two shards; the second holds one document of 20 tokens in rows of 16."""
    long_document = pack_documents(build_documents({"long": range(100, 120)}, {"long": "code"}), ROW_FORMAT, "concat")
    packings = [make_packing(12, seed=4), long_document]
    reports = [shards.write_shard(tmp_path, number, packing) for number, packing in enumerate(packings)]
    shards.finish_split(tmp_path, reports, sum((p.ledger for p in packings), Ledger()), description())
    return tmp_path


def test_a_document_is_found_in_its_rows(split: Path) -> None:
    first = make_packing(12, seed=4).num_rows
    assert lookup.rows_of_document(split, "long") == [
        lookup.RowSegment(first, 1, "long", "code", 0, 16),
        lookup.RowSegment(first + 1, 1, "long", "code", 16, 20),
    ]
    assert lookup.rows_of_document(split, "unknown") == []


def test_every_row_agrees_with_its_segments(split: Path) -> None:
    num_rows = make_packing(12, seed=4).num_rows + 2
    for row in range(num_rows):
        token_ids, segment_ids = lookup.read_row(split, row)
        segments = lookup.segments_of_row(split, row)
        assert [segment.row for segment in segments] == [row] * len(segments)
        assert [segment.segment for segment in segments] == list(range(1, int(segment_ids.max()) + 1))
        for segment in segments:
            assert (segment_ids == segment.segment).sum() == segment.token_end - segment.token_start
    assert token_ids.tolist() == [116, 117, 118, 119] + [0] * 12


@pytest.mark.parametrize("row", [-1, 1000])
def test_a_row_that_is_not_there(split: Path, row: int) -> None:
    with pytest.raises(ConfigError, match=f"has rows 0 to .*Received: row={row}"):
        lookup.segments_of_row(split, row)


def test_a_damaged_index_is_named(split: Path) -> None:
    (split / "index-00001-of-00002.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(CorpusError, match="index-00001-of-00002.parquet is missing or damaged"):
        lookup.rows_of_document(split, "long")


def test_a_shard_cut_short_is_named(split: Path) -> None:
    path = split / "rows-00001-of-00002.tfrecord"
    path.write_bytes(path.read_bytes()[: ROW_FORMAT.record_bytes])
    last = make_packing(12, seed=4).num_rows + 1
    with pytest.raises(CorpusError, match="rows-00001-of-00002.tfrecord ends before record 1"):
        lookup.read_row(split, last)
