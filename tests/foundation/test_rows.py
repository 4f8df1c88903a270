"""Packed rows: their bytes, their place in a file, the ledger that must balance."""

import dataclasses

import numpy as np
import pytest

from foundation.errors import CorpusError
from foundation.rows import Ledger, PackingManifest, RowFormat


def test_a_row_is_token_ids_then_segment_ids_little_endian():
    row_format = RowFormat(seq_len=2, dtype="uint16")
    payload = row_format.encode(np.array([[1, 2, 258]]), np.array([[1, 1, 0]]))
    assert payload.tobytes() == bytes([1, 0, 2, 0, 2, 1, 1, 0, 1, 0, 0, 0])
    assert row_format.payload_bytes == 12
    assert row_format.record_bytes == 12 + 12 + 4


def test_decode_inverts_encode():
    row_format = RowFormat(seq_len=4, dtype="uint32")
    token_ids = np.arange(15).reshape(3, 5) + 70_000
    segment_ids = np.array([[1, 1, 2, 2, 0]] * 3)
    decoded_ids, decoded_segments = row_format.decode(row_format.encode(token_ids, segment_ids).tobytes())
    np.testing.assert_array_equal(decoded_ids, token_ids)
    np.testing.assert_array_equal(decoded_segments, segment_ids)


@pytest.mark.parametrize(
    ("vocab_size", "seq_len", "dtype"),
    [(65_536, 256, "uint16"), (65_537, 256, "uint32"), (300, 65_534, "uint16"), (300, 65_535, "uint32")],
)
def test_dtype_is_the_narrowest_that_holds_ids_and_segments(vocab_size, seq_len, dtype):
    assert RowFormat.for_vocab(seq_len, vocab_size).dtype == dtype


BALANCED = Ledger(
    documents_in=3,
    documents_packed=2,
    documents_dropped=1,
    tokens_in=30,
    tokens_packed=28,
    tokens_dropped=2,
    bytes_in=90,
    bytes_packed=90,
    bytes_dropped=0,
    dropped_by_reason={"no tokens": 1},
)


def test_a_balanced_ledger_passes_and_sums_stay_balanced():
    BALANCED.check()
    total = BALANCED + BALANCED + Ledger(documents_in=1, documents_dropped=1, dropped_by_reason={"too long": 1})
    total.check()
    assert total.documents_in == 7
    assert total.dropped_by_reason == {"no tokens": 2, "too long": 1}


@pytest.mark.parametrize("account", ["documents_in", "tokens_packed", "bytes_dropped"])
def test_one_missing_unit_is_reported(account):
    wrong = dataclasses.replace(BALANCED, **{account: getattr(BALANCED, account) + 1})
    with pytest.raises(CorpusError, match=account.split("_")[0]):
        wrong.check()


def test_reasons_must_add_up_to_the_dropped_documents():
    with pytest.raises(CorpusError, match="sum of reasons"):
        dataclasses.replace(BALANCED, dropped_by_reason={"no tokens": 2}).check()


def test_manifest_survives_saving(tmp_path):
    manifest = PackingManifest(
        split="train",
        policy="concat",
        row_format=RowFormat(8, "uint16"),
        vocab_size=300,
        tokenizer_sha256="ab",
        num_rows=5,
        num_pad_tokens=2,
        num_cut_documents=1,
        tokens_by_source={"käse": 28},
        shard_rows=[3, 2],
        ledger=BALANCED,
    )
    manifest.save(tmp_path)
    assert PackingManifest.load(tmp_path) == manifest
    assert manifest.shard_names == ["rows-00000-of-00002.tfrecord", "rows-00001-of-00002.tfrecord"]


def test_a_missing_or_foreign_manifest_is_named(tmp_path):
    with pytest.raises(CorpusError, match="packing.json is missing"):
        PackingManifest.load(tmp_path)
    (tmp_path / "packing.json").write_text('{"split": "train"}')
    with pytest.raises(CorpusError, match="not a packing manifest"):
        PackingManifest.load(tmp_path)
