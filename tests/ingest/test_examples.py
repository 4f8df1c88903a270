"""Our tf.Example is TensorFlow's, byte for byte in both directions, and so is the framing of a record."""

from pathlib import Path

import pytest

from foundation.tfrecord import frame_one
from ingest.documents import Document
from ingest.examples import NotAnExampleError, decode, encode

DOCUMENT = Document("books/é.txt", "Zeile\r\n\t한국어 🦜".encode(), "books", "somewhere")


def test_tensorflow_reads_what_we_write(tmp_path: Path) -> None:
    import tensorflow as tf

    path = tmp_path / "documents.tfrecord"
    path.write_bytes(frame_one(encode(DOCUMENT)) + frame_one(b""))
    first, second = (record.numpy() for record in tf.data.TFRecordDataset(str(path)))
    assert second == b""
    features = tf.train.Example.FromString(first).features.feature
    assert {name: list(feature.bytes_list.value) for name, feature in features.items()} == {
        "doc_id": ["books/é.txt".encode()],
        "text": ["Zeile\r\n\t한국어 🦜".encode()],
        "source": [b"books"],
    }


def test_we_read_what_tensorflow_writes() -> None:
    import tensorflow as tf

    example = tf.train.Example()
    example.features.feature["text"].bytes_list.value.extend([b"a", b"b"])
    example.features.feature["number"].int64_list.value.append(-7)
    example.features.feature["weight"].float_list.value.append(0.5)
    example.features.feature["nothing"].bytes_list.SetInParent()
    example.features.feature["unset"].SetInParent()
    expected = {"text": [b"a", b"b"], "number": [-7], "weight": [0.5], "nothing": [], "unset": []}
    assert decode(example.SerializeToString()) == expected


def test_equal_documents_give_equal_bytes_with_features_in_order_of_their_names() -> None:
    serialized = encode(DOCUMENT)
    assert serialized == encode(DOCUMENT)
    assert serialized.index(b"doc_id") < serialized.index(b"source") < serialized.index(b"text")


def test_other_bytes_are_no_example() -> None:
    with pytest.raises(NotAnExampleError):
        decode(b"\x0a\xff\xff")
