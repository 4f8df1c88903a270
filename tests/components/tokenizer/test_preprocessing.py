"""Transform learns the tokenizer from the corpus and embeds it in its graph."""

import hashlib

import pytest
import sentencepiece
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.tf_metadata import dataset_metadata

from components.tokenizer.preprocessing import TOKENIZER_ASSET, preprocessing_fn
from trainer_module.tokenization import escape_text

DOCUMENTS = [
    {"doc_id": b"a", "text": b"def add(x, y):\n\treturn x + y\r\n", "source": b"code"},
    {"doc_id": b"b", "text": "\u2581 marker, \ud55c\uad6d, \U0001f600".encode(), "source": b"odd"},
    {"doc_id": b"c", "text": b"", "source": b"odd"},
    {"doc_id": b"d", "text": b"def sub(x, y):\n    return x - y\n" * 3, "source": b"code"},
]


@pytest.fixture(scope="module", params=["fixed", "variable"])
def transformed(request, tmp_path_factory):
    """Rows and graph, for features of either kind that a schema can make of one value a row."""
    folder = tmp_path_factory.mktemp("transform")
    feature = tf.io.FixedLenFeature([], tf.string) if request.param == "fixed" else tf.io.VarLenFeature(tf.string)
    metadata = dataset_metadata.DatasetMetadata.from_feature_spec(dict.fromkeys(("doc_id", "text", "source"), feature))
    rows = DOCUMENTS
    if request.param == "variable":
        rows = [{name: [value] for name, value in document.items()} for document in DOCUMENTS]
    settings = {"tokenizer": {"vocab_size": 290, "split_digits": False, "max_words": 1000}}

    def with_settings(inputs):
        return preprocessing_fn(inputs, settings)

    with tft_beam.Context(temp_dir=str(folder / "temp")):
        (data, _), graph = (rows, metadata) | tft_beam.AnalyzeAndTransformDataset(with_settings)
        _ = graph | tft_beam.WriteTransformFn(str(folder / "graph"))
    return {row["doc_id"]: row for row in data}, folder / "graph", request.param


def test_ids_in_the_graph_are_those_of_the_asset(transformed):
    rows, graph, _ = transformed
    asset = graph / "transform_fn" / "assets" / TOKENIZER_ASSET
    processor = sentencepiece.SentencePieceProcessor(model_file=str(asset))
    for document in DOCUMENTS:
        expected = [2, *processor.encode(escape_text(document["text"].decode())), 3]
        assert rows[document["doc_id"]]["token_ids"].tolist() == expected


def test_other_features_are_kept(transformed):
    rows, _, _ = transformed
    assert {doc_id: (int(row["num_bytes"]), row["source"]) for doc_id, row in rows.items()} == {
        document["doc_id"]: (len(document["text"]), document["source"]) for document in DOCUMENTS
    }


def test_the_saved_graph_tokenizes_new_text_without_the_asset(transformed):
    """The model is embedded: serving needs no file beside the graph."""
    _, graph, kind = transformed
    graph_of_text = tft.TFTransformOutput(str(graph))
    texts = {"doc_id": ["new"], "text": ["def new(x):"], "source": ["s"]}
    raw = {name: tf.constant(value) for name, value in texts.items()}
    if kind == "variable":
        raw = {name: tf.sparse.from_dense(value[:, None]) for name, value in raw.items()}
    ids = graph_of_text.transform_raw_features(raw)["token_ids"]
    asset = graph / "transform_fn" / "assets" / TOKENIZER_ASSET
    processor = sentencepiece.SentencePieceProcessor(model_file=str(asset))
    assert tf.sparse.to_dense(ids).numpy().tolist() == [[2, *processor.encode("def new(x):"), 3]]


def test_both_kinds_of_feature_give_the_same_tokenizer(transformed):
    _, graph, _ = transformed
    digest = hashlib.sha256((graph / "transform_fn" / "assets" / TOKENIZER_ASSET).read_bytes()).hexdigest()
    assert _DIGESTS.setdefault("first", digest) == digest


_DIGESTS: dict[str, str] = {}
