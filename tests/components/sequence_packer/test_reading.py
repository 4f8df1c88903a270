"""Examples in, columns out; what is no tokenized document is named by file and record."""

import gzip
from pathlib import Path

import pytest

from components.sequence_packer import reading
from components.sequence_packer.documents import DocumentBatch
from foundation.errors import CorpusError
from tests.components.sequence_packer.corpora import random_tokens, write_examples


def test_documents_come_back_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across several decoded batches, one document without tokens among them."""
    monkeypatch.setattr(reading, "_BATCH_DOCUMENTS", 7)
    tokens = {**random_tokens(count=30, seed=1), "empty": [], "last": [5]}
    path = write_examples(tmp_path / "part.gz", tokens, {"last": "코드"})
    batches = list(reading.read_documents(str(path)))
    assert [len(batch) for batch in batches] == [7, 7, 7, 7, 4]
    batch = DocumentBatch.concat(batches)
    assert batch.doc_ids.tolist() == list(tokens)
    assert batch.sources.tolist() == ["web"] * 31 + ["코드"]
    assert batch.lengths.tolist() == [len(ids) for ids in tokens.values()]
    assert batch.token_ids.tolist() == [token for ids in tokens.values() for token in ids]
    assert batch.num_bytes.tolist() == [3 * len(ids) for ids in tokens.values()]


def _example(**features: list[int] | list[bytes]) -> bytes:
    import tensorflow as tf

    def feature(values: list[int] | list[bytes]) -> tf.train.Feature:
        if not values:
            return tf.train.Feature()
        if isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    example = tf.train.Example()
    for name, values in features.items():
        example.features.feature[name].CopyFrom(feature(values))
    return example.SerializeToString()


GOOD: dict[str, list] = {"token_ids": [2, 3], "num_bytes": [1], "doc_id": [b"good"], "source": [b"web"]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"doc_id": []}, "record 1: feature 'doc_id' must have exactly one value.*Received: 0 values"),
        ({"source": [b"a", b"b"]}, "record 1: feature 'source' must have exactly one value.*Received: 2 values"),
        ({"num_bytes": []}, "record 1: feature 'num_bytes'"),
        ({"doc_id": [b"\xff"]}, "record 1: feature 'doc_id' is not valid UTF-8.*Received: b'.xff'"),
        ({"token_ids": [b"text"]}, "records 0 to 1: not tf.Examples of tokenized documents"),
    ],
)
def test_a_wrong_example_is_named(tmp_path: Path, change: dict[str, list], said: str) -> None:
    import tensorflow as tf

    path = tmp_path / "part.gz"
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        writer.write(_example(**GOOD))
        writer.write(_example(**{**GOOD, **change}))
    with pytest.raises(CorpusError, match=f"part.gz, {said}"):
        list(reading.read_documents(str(path)))


def test_a_missing_token_feature_is_a_document_without_tokens(tmp_path: Path) -> None:
    import tensorflow as tf

    path = tmp_path / "part.gz"
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        writer.write(_example(num_bytes=[0], doc_id=[b"a"], source=[b"web"]))
    (batch,) = reading.read_documents(str(path))
    assert batch.lengths.tolist() == [0]
    assert batch.token_ids.tolist() == []


def test_an_empty_file_holds_no_documents(tmp_path: Path) -> None:
    path = tmp_path / "part.gz"
    path.write_bytes(gzip.compress(b""))
    assert list(reading.read_documents(str(path))) == []


def test_side_files_are_no_examples(tmp_path: Path) -> None:
    for name in ("part-1.gz", "part-0.gz", "_SUCCESS", ".part-0.gz.crc"):
        (tmp_path / name).touch()
    assert reading.example_files(tmp_path) == [str(tmp_path / "part-0.gz"), str(tmp_path / "part-1.gz")]


def test_a_folder_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="Split-eval holds no example files"):
        reading.example_files(tmp_path / "Split-eval")
