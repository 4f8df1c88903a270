"""The preprocessing_fn of Transform: documents in, token ids out.

The tokenizer is learned from the training split alone and embedded in the transform graph. It is
also kept as an asset named `spm`, which is what the exported model is built with.
"""

import os
from typing import Any

import apache_beam as beam
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam

from components.tokenizer.learning import LearningOptions, LearnTokenizer
from foundation.documents import DOC_ID, NUM_BYTES, SOURCE, TEXT, TOKEN_IDS
from foundation.transform_graph import TOKENIZER_ASSET
from trainer_module.tokenization import Tokenizer

PREPROCESSING_FN = "components.tokenizer.preprocessing.preprocessing_fn"
"""Import path of `preprocessing_fn`, as Transform takes it."""


def preprocessing_fn(inputs: dict[str, Any], custom_config: dict[str, Any]) -> dict[str, Any]:
    """Tokenizes documents.

    Args:
      inputs: `doc_id`, `text`, `source`: string tensors [B] or [B, 1], or sparse with one value a row.
      custom_config: `tokenizer`: the fields of `LearningOptions`.

    Returns:
      `token_ids` (variable length, int64), `num_bytes`, `doc_id`, `source`: as `foundation.documents` says.
    """
    text, doc_id, source = (_one_per_row(inputs[name]) for name in (TEXT, DOC_ID, SOURCE))
    options = LearningOptions(**custom_config["tokenizer"])
    (model,) = tft.experimental.ptransform_analyzer(
        [text],
        _LearnIntoAsset(options),
        [tf.string],
        [[]],
        output_asset_default_values=[b"not learned yet"],
        name=TOKENIZER_ASSET,
    )
    tft.annotate_asset(TOKENIZER_ASSET, TOKENIZER_ASSET)
    return {
        TOKEN_IDS: _token_ids(text, model).to_sparse(),
        NUM_BYTES: tf.cast(tf.strings.length(text), tf.int64),
        DOC_ID: doc_id,
        SOURCE: source,
    }


class _LearnIntoAsset(tft_beam.experimental.PTransformAnalyzer):
    """Learns the tokenizer and writes it to a file, which Transform copies into the graph's assets."""

    def __init__(self, options: LearningOptions):
        super().__init__()
        self._options = options

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        path = os.path.join(self.base_temp_dir, TOKENIZER_ASSET)
        return batches | LearnTokenizer(self._options) | "WriteAsset" >> beam.Map(_write_asset, path)


def _write_asset(model: bytes, path: str) -> bytes:
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "wb") as asset:
        asset.write(model)
    return path.encode()


def _token_ids(text: tf.Tensor, model: tf.Tensor) -> tf.RaggedTensor:
    """[B, (tokens)] int64."""
    if hasattr(model, "numpy"):  # the analyzer has run: `model` is the path of the asset
        with tf.io.gfile.GFile(model.numpy(), "rb") as asset:
            return tf.cast(Tokenizer(asset.read()).document(text), tf.int64)
    # Tracing before the analyzer has run: anything of the same type that depends on the model.
    length = tf.cast(tf.strings.length(model), tf.int64)
    values = tf.fill([tf.size(text)], length)
    return tf.RaggedTensor.from_uniform_row_length(values, 1)


def _one_per_row(feature: Any) -> tf.Tensor:
    """[B] from whatever the schema makes of a single value."""
    if isinstance(feature, (tf.SparseTensor, tf.compat.v1.SparseTensor)):
        feature = tf.sparse.to_dense(feature, default_value="")
    return tf.reshape(feature, [-1])
