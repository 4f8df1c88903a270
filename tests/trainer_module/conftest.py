"""A tiny model, tokenizer and set of rows, shared by the tests of this folder."""

import collections
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest

from foundation.rows import Ledger, PackingManifest, RowFormat
from trainer_module.config import ModelConfig

TEXT = (
    "def add(left, right):\n    return left + right\n\n\nclass Box:\n    def __init__(self):\n        self.items = []\n"
)


@pytest.fixture(scope="session")
def tokenizer_model() -> bytes:
    """SentencePiece model of 300 pieces."""
    from components.tokenizer.learning import LearningOptions, count_words_of_batch, learn_from_counts

    counts = collections.Counter(dict(count_words_of_batch((np.array([TEXT.encode()], dtype=object),))))
    return learn_from_counts(counts.items(), LearningOptions(vocab_size=300, split_digits=False, max_words=1000))


@pytest.fixture
def tiny() -> ModelConfig:
    """Two layers, grouped-query attention: every code path of the default kind of model."""
    return ModelConfig(vocab_size=300, seq_len=16, num_layers=2, width=32, num_heads=4, num_kv_heads=2)


@pytest.fixture
def gpt2() -> ModelConfig:
    """GPT-2's kind of model, tiny."""
    return ModelConfig(
        vocab_size=300,
        seq_len=16,
        num_layers=2,
        width=32,
        num_heads=4,
        norm="layernorm",
        position="learned",
        mlp="gelu",
        use_bias=True,
    )


def write_rows(folder, token_ids, segment_ids, vocab_size=300, shards=1):
    """Writes a split with TensorFlow's own TFRecord writer. token_ids, segment_ids: [rows, seq_len + 1]."""
    import tensorflow as tf

    row_format = RowFormat.for_vocab(token_ids.shape[1] - 1, vocab_size)
    parts = np.array_split(np.arange(len(token_ids)), shards)
    manifest = PackingManifest(
        split=folder.name,
        policy="concat",
        row_format=row_format,
        vocab_size=vocab_size,
        tokenizer_sha256="00",
        num_rows=len(token_ids),
        num_pad_tokens=int((segment_ids == 0).sum()),
        num_cut_documents=0,
        tokens_by_source={},
        shard_rows=[len(part) for part in parts],
        ledger=Ledger(),
    )
    folder.mkdir(parents=True)
    for name, part in zip(manifest.shard_names, parts, strict=True):
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for payload in row_format.encode(token_ids[part], segment_ids[part]):
                writer.write(payload.tobytes())
    manifest.save(folder)
    return folder


def random_rows(count, seq_len, vocab_size=300, seed=0):
    """Rows of two documents and some padding each."""
    random = np.random.default_rng(seed)
    token_ids = random.integers(4, vocab_size, (count, seq_len + 1))
    segment_ids = np.ones_like(token_ids)
    for row in range(count):
        first, second = sorted(random.integers(1, seq_len + 2, 2))
        segment_ids[row, first:] = 2
        segment_ids[row, second:] = 0
    return np.where(segment_ids == 0, 0, token_ids), segment_ids
