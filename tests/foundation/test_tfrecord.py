"""The framing is TensorFlow's, and damage is named by file and record."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from foundation import tfrecord
from foundation.errors import CorpusError

PAYLOADS = np.arange(5 * 24, dtype=np.uint8).reshape(5, 24)


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "rows.tfrecord"
    path.write_bytes(tfrecord.frame(PAYLOADS).tobytes())
    return path


def test_tensorflow_reads_what_frame_writes(shard: Path) -> None:
    import tensorflow as tf

    read = [record.numpy() for record in tf.data.TFRecordDataset(str(shard))]
    assert read == [payload.tobytes() for payload in PAYLOADS]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_read_records_reads_what_tensorflow_writes(tmp_path: Path, compression: str) -> None:
    import tensorflow as tf

    records = [b"", b"one", bytes(range(256)) * 1000]
    path = tmp_path / ("records.gz" if compression else "records.tfrecord")
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)
    assert list(tfrecord.read_records(path)) == records


def test_an_empty_file_holds_no_records(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert list(tfrecord.read_records(tmp_path / "empty")) == []


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (2 * 40 + 3, "record 2: wrong checksum of the length"),
        (2 * 40 + 9, "record 2: wrong checksum of the length"),
        (2 * 40 + 20, "record 2: wrong checksum of the payload"),
        (2 * 40 + 38, "record 2: wrong checksum of the payload"),
    ],
)
def test_one_flipped_bit_is_found(shard: Path, offset: int, said: str) -> None:
    data = bytearray(shard.read_bytes())
    data[offset] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorpusError, match=f"rows.tfrecord, {said}"):
        list(tfrecord.read_records(shard))


@pytest.mark.parametrize(("size", "said"), [(85, "inside a record's header"), (100, "after 8 of 28 bytes")])
def test_a_file_cut_short_is_found(shard: Path, size: int, said: str) -> None:
    shard.write_bytes(shard.read_bytes()[:size])
    with pytest.raises(CorpusError, match=f"record 2: the file ends {said}"):
        list(tfrecord.read_records(shard))


def test_gzip_cut_short_is_found(shard: Path) -> None:
    packed = gzip.compress(shard.read_bytes())
    path = shard.with_name("rows.gz")
    path.write_bytes(packed[:-20])
    with pytest.raises(CorpusError, match="rows.gz, record .: (damaged gzip data|the file ends)"):
        list(tfrecord.read_records(path))
