"""Shards are addressable at random, appear whole or not at all, and only with balanced books."""

import dataclasses
import errno
import hashlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.sequence_packer import shards
from components.sequence_packer.packing import Packing, pack_documents
from foundation.errors import CorpusError
from foundation.rows import Ledger, PackingManifest, RowFormat
from tests.components.sequence_packer.corpora import build_documents, random_tokens

ROW_FORMAT = RowFormat(seq_len=15, dtype="uint16")


def make_packing(count: int, seed: int) -> Packing:
    tokens = {f"seed{seed}-{doc_id}": ids for doc_id, ids in random_tokens(count, seed).items()}
    return pack_documents(build_documents(tokens), ROW_FORMAT, "concat")


def description(split: str = "train") -> PackingManifest:
    return PackingManifest(
        split=split,
        policy="concat",
        row_format=ROW_FORMAT,
        vocab_size=500,
        tokenizer_sha256="00",
        num_rows=0,
        num_pad_tokens=0,
        num_cut_documents=0,
        tokens_by_source={},
        shard_rows=[],
        ledger=Ledger(),
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_record_i_starts_at_i_times_the_record_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that seeks finds what TensorFlow's reader finds in sequence; blocks leave no seam."""
    import tensorflow as tf

    monkeypatch.setattr(shards, "_TOKENS_PER_BLOCK", 7 * 16)
    packing = make_packing(count=40, seed=0)
    report = shards.write_shard(tmp_path, 0, packing)
    token_ids, segment_ids = packing.rows(0, packing.num_rows)
    data = Path(report.rows_path).read_bytes()
    assert report.sha256 == hashlib.sha256(data).hexdigest()
    record_bytes = 12 + 2 * 16 * 2 + 4
    assert len(data) == packing.num_rows * record_bytes
    records = [record.numpy() for record in tf.data.TFRecordDataset(report.rows_path)]
    assert len(records) == packing.num_rows
    for i, record in enumerate(records):
        assert data[i * record_bytes + 12 : (i + 1) * record_bytes - 4] == record
        assert np.frombuffer(record, "<u2").tolist() == token_ids[i].tolist() + segment_ids[i].tolist()


def test_report_counts_what_was_written(tmp_path: Path) -> None:
    packing = make_packing(count=40, seed=0)
    report = shards.write_shard(tmp_path, 0, packing)
    assert report.num_rows == packing.num_rows
    assert report.num_pad_tokens == packing.num_pad_tokens
    assert report.ledger == packing.ledger


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq, "write_table", no_space)
    with pytest.raises(OSError, match="No space left"):
        shards.write_shard(tmp_path, 0, make_packing(count=5, seed=0))
    assert names(tmp_path) == []


def test_finish_numbers_the_shards_that_have_rows(tmp_path: Path) -> None:
    """Partition 1 has nothing but an empty document: no shard, but a line in the ledger."""
    packings = {0: make_packing(9, seed=1), 2: make_packing(30, seed=2)}
    packings[1] = pack_documents(build_documents({"empty": []}), ROW_FORMAT, "concat")
    reports = [shards.write_shard(tmp_path, number, packing) for number, packing in packings.items()]
    entered = sum((packing.ledger for packing in packings.values()), Ledger())
    manifest = shards.finish_split(tmp_path, reports, entered, description())
    shards.remove_files(tmp_path, ".staging-")
    assert names(tmp_path) == [
        "index-00000-of-00002.parquet",
        "index-00001-of-00002.parquet",
        "packing.json",
        "rows-00000-of-00002.tfrecord",
        "rows-00001-of-00002.tfrecord",
    ]
    assert manifest == PackingManifest.load(tmp_path)
    assert manifest.shard_rows == [packings[0].num_rows, packings[2].num_rows]
    assert manifest.num_rows == packings[0].num_rows + packings[2].num_rows
    assert manifest.ledger.dropped_by_reason == {"no_tokens": 1}
    assert manifest.ledger.documents_in == 40
    assert (tmp_path / "rows-00001-of-00002.tfrecord").stat().st_size == packings[2].num_rows * ROW_FORMAT.record_bytes


def test_finish_can_be_repeated(tmp_path: Path) -> None:
    """A bundle that is retried after the renames finds its work done."""
    packing = make_packing(9, seed=1)
    report = shards.write_shard(tmp_path, 0, packing)
    first = shards.finish_split(tmp_path, [report], packing.ledger, description())
    assert shards.finish_split(tmp_path, [report], packing.ledger, description()) == first


@pytest.mark.parametrize("unit", ["documents", "tokens", "bytes"])
def test_a_remainder_fails_and_publishes_nothing(tmp_path: Path, unit: str) -> None:
    packing = make_packing(9, seed=1)
    report = shards.write_shard(tmp_path, 0, packing)
    came = getattr(packing.ledger, f"{unit}_in")
    entered = dataclasses.replace(packing.ledger, **{f"{unit}_in": came + 1})
    with pytest.raises(CorpusError, match=rf"ledger does not balance: {unit} in {came + 1} .*remainder 1"):
        shards.finish_split(tmp_path, [report], entered, description())
    assert all(name.startswith(".staging-") for name in names(tmp_path))


def test_a_split_without_tokens_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"split 'eval' holds no tokens \(0 documents were read\); add documents"):
        shards.finish_split(tmp_path, [], Ledger(), description("eval"))


def test_prepare_folder_removes_an_earlier_attempt(tmp_path: Path) -> None:
    for name in (
        ".staging-rows-00003-ab",
        "rows-00000-of-00009.tfrecord",
        "index-00000-of-00009.parquet",
        "packing.json",
    ):
        (tmp_path / name).touch()
    (tmp_path / "notes.txt").touch()
    shards.prepare_folder(tmp_path)
    assert names(tmp_path) == ["notes.txt"]
