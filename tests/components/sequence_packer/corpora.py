"""Tokenized documents, in memory and as Transform leaves them on disk."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from hypothesis import settings

from components.sequence_packer.documents import DocumentBatch

Tokens = Mapping[str, Sequence[int]]

properties = settings(deadline=None, max_examples=60)
"""Of every property test here. No deadline: the first example pays for imports."""


def build_documents(tokens: Tokens, sources: dict[str, str] | None = None) -> DocumentBatch:
    """doc_id -> token ids, in the order given; 3 bytes per token; source `web` unless told otherwise."""
    lengths = [len(ids) for ids in tokens.values()]
    return DocumentBatch.build(
        doc_ids=list(tokens),
        sources=[(sources or {}).get(doc_id, "web") for doc_id in tokens],
        num_bytes=np.array([3 * length for length in lengths], dtype=np.int64),
        lengths=np.array(lengths, dtype=np.int64),
        token_ids=np.array([token for ids in tokens.values() for token in ids], dtype=np.int64),
    )


def random_tokens(count: int, seed: int, vocab_size: int = 500, longest: int = 60) -> Tokens:
    """`count` documents of 1 to `longest` tokens."""
    random = np.random.default_rng(seed)
    return {f"doc-{i}": random.integers(4, vocab_size, random.integers(1, longest + 1)).tolist() for i in range(count)}


def write_examples(path: Path, tokens: Tokens, sources: dict[str, str] | None = None) -> Path:
    """Writes one gzipped TFRecord file of tf.Example, with TensorFlow's own writer."""
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for doc_id, ids in tokens.items():
            writer.write(serialized_example(doc_id, ids, (sources or {}).get(doc_id, "web")))
    return path


def serialized_example(doc_id: str, token_ids: Sequence[int], source: str = "web") -> bytes:
    import tensorflow as tf

    features = {
        "token_ids": tf.train.Feature(int64_list=tf.train.Int64List(value=token_ids)),
        "num_bytes": tf.train.Feature(int64_list=tf.train.Int64List(value=[3 * len(token_ids)])),
        "doc_id": tf.train.Feature(bytes_list=tf.train.BytesList(value=[doc_id.encode()])),
        "source": tf.train.Feature(bytes_list=tf.train.BytesList(value=[source.encode()])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def read_payloads(path: Path) -> list[bytes]:
    """Payloads of a TFRecord file, unchecked: 8 bytes of length, 4 skipped, the payload, 4 skipped."""
    data, payloads, at = path.read_bytes(), [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        payloads.append(data[at + 12 : at + 12 + length])
        at += 16 + length
    return payloads
