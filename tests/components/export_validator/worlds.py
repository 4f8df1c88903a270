"""A small model with everything that led to it: documents, tokenizer, rows, the trainer's reference, the export."""

import collections
import hashlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from components.sequence_packer import shards
from components.sequence_packer.documents import DocumentBatch
from components.sequence_packer.packing import pack_documents
from components.tokenizer.learning import LearningOptions, count_words_of_batch, learn_from_counts
from foundation.rows import Ledger, PackingManifest, RowFormat
from trainer_module.config import ModelConfig

CONFIG = ModelConfig(vocab_size=300, seq_len=32, num_layers=2, width=32, num_heads=4, num_kv_heads=2)
LINE = "def add(left, right):\n    return left + right\n\n\n"
DOCUMENTS = {
    "short": "a",
    "code": LINE * 4,
    "words": "class Box:\n    def __init__(self):\n        self.items = []\n" * 3,
    "tongues": "käse \u2581 \u001a 한국 \U0001f980\r\n\ttab  two",
    "long": LINE * 9,
}


def make_world(folder: Path) -> SimpleNamespace:
    """Writes it all into `folder`. `params` are the trained values; `export` writes a model with others."""
    import tensorflow as tf

    from trainer_module import export, reference
    from trainer_module.parameters import init
    from trainer_module.tokenization import Tokenizer

    text = np.array(["".join(DOCUMENTS.values()).encode()], dtype=object)
    counts = collections.Counter(dict(count_words_of_batch((text,))))
    options = LearningOptions(vocab_size=CONFIG.vocab_size, split_digits=False, max_words=1000)
    tokenizer = learn_from_counts(counts.items(), options)
    tokens = Tokenizer(tokenizer).document(tf.constant(list(DOCUMENTS.values()))).to_list()
    _write_examples(folder / "examples" / "Split-eval")
    _write_rows(folder / "rows" / "Split-eval", tokens, hashlib.sha256(tokenizer).hexdigest())
    random = np.random.default_rng(0)
    params = {
        name: tf.cast(value + random.normal(0, 0.2, value.shape), tf.float32) for name, value in init(CONFIG, 1).items()
    }
    (folder / "run").mkdir()
    reference.write_reference(folder / "run", CONFIG, params, folder / "rows" / "Split-eval")

    def write_model(name: str, values: dict[str, tf.Tensor]) -> Path:
        export.export(folder / name / "Format-Serving", CONFIG, values, tokenizer, {})
        return folder / name

    return SimpleNamespace(folder=folder, params=params, export=write_model, model=write_model("model", params))


def _write_examples(folder: Path) -> None:
    import tensorflow as tf

    def feature(value: str) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))

    folder.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(folder / "data_tfrecord-00000-of-00001.gz"), "GZIP") as writer:
        for doc_id, text in DOCUMENTS.items():
            features = {"doc_id": feature(doc_id), "text": feature(text), "source": feature("test")}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def _write_rows(folder: Path, tokens: list[list[int]], tokenizer_sha256: str) -> None:
    row_format = RowFormat.for_vocab(CONFIG.seq_len, CONFIG.vocab_size)
    documents = DocumentBatch.build(
        doc_ids=list(DOCUMENTS),
        sources=["test"] * len(DOCUMENTS),
        num_bytes=np.array([len(text.encode()) for text in DOCUMENTS.values()]),
        lengths=np.array([len(ids) for ids in tokens]),
        token_ids=np.concatenate(tokens),
    )
    packing = pack_documents(documents, row_format, "concat")
    description = PackingManifest(
        split="eval",
        policy="concat",
        row_format=row_format,
        vocab_size=CONFIG.vocab_size,
        tokenizer_sha256=tokenizer_sha256,
        num_rows=0,
        num_pad_tokens=0,
        num_cut_documents=0,
        tokens_by_source={},
        shard_rows=[],
        ledger=Ledger(),
    )
    folder.mkdir(parents=True)
    shards.finish_split(folder, [shards.write_shard(folder, 0, packing)], packing.ledger, description)
