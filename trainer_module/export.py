"""The exported model: one SavedModel, strings in and strings out.

Signatures, each over a batch of any size:

    serving_default   prompt, max_new_tokens, temperature, top_k, top_p, seed -> text, num_tokens, prompt_tokens_dropped
    score             text -> nll, num_tokens, num_correct, num_bytes
    tokenize          text -> token_ids (padded with 0), num_tokens
    detokenize        token_ids (0 is padding) -> text

All inputs of `serving_default` are per row, so that a server can put requests into one batch.
It needs no code of this project to load, only the SentencePiece op: TensorFlow Serving has it built
in; in Python `import tensorflow_text` comes first.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from foundation.special_tokens import PAD_ID
from trainer_module import generation, scoring
from trainer_module.config import ModelConfig
from trainer_module.tokenization import Tokenizer

ASSETS_EXTRA = "assets.extra"
MODEL_FILE = "tokenmill.json"
"""In `assets.extra`: the model's configuration and what its trainer knew of it."""


class ExportedModel(tf.Module):
    """Weights, tokenizer and the functions that serve them."""

    def __init__(self, config: ModelConfig, params: Mapping[str, tf.Tensor], tokenizer_model: bytes):
        super().__init__(name="tokenmill")
        self._config = config
        # A flat list: tf.Module forbids "/" in attribute names, and the names are in the variables.
        self._weights = [tf.Variable(value, trainable=False, name=name) for name, value in params.items()]
        self._names = list(params)
        self._tokenizer = Tokenizer(tokenizer_model)

    @property
    def _params(self) -> dict[str, tf.Tensor]:
        return {name: tf.convert_to_tensor(weight) for name, weight in zip(self._names, self._weights, strict=True)}

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec([None], tf.string, "prompt"),
            tf.TensorSpec([None], tf.int32, "max_new_tokens"),
            tf.TensorSpec([None], tf.float32, "temperature"),
            tf.TensorSpec([None], tf.int32, "top_k"),
            tf.TensorSpec([None], tf.float32, "top_p"),
            tf.TensorSpec([None], tf.int32, "seed"),
        ],
    )
    def generate(
        self,
        prompt: tf.Tensor,
        max_new_tokens: tf.Tensor,
        temperature: tf.Tensor,
        top_k: tf.Tensor,
        top_p: tf.Tensor,
        seed: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Continues prompts. Every input is [B]; a text in the answer does not repeat its prompt."""
        checks = [
            tf.debugging.assert_greater_equal(max_new_tokens, 1, "max_new_tokens must be at least 1"),
            tf.debugging.assert_equal(
                tf.math.is_finite(temperature) & (temperature >= 0), True, "temperature must be finite and at least 0"
            ),
            tf.debugging.assert_greater_equal(top_k, 0, "top_k must be at least 0; 0 means all"),
            tf.debugging.assert_equal((top_p >= 0) & (top_p <= 1), True, "top_p must lie between 0 and 1; 1 means all"),
        ]
        with tf.control_dependencies(checks):
            prompt = tf.identity(prompt)
        sampling = generation.Sampling(max_new_tokens, temperature, top_k, top_p, seed)
        made = generation.generate(self._config, self._params, self._tokenizer.prompt(prompt), sampling)
        return {
            "text": self._tokenizer.text(made.token_ids),
            "num_tokens": tf.cast(made.token_ids.row_lengths(), tf.int32),
            "prompt_tokens_dropped": made.prompt_tokens_dropped,
        }

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def score(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """How well the model predicts whole documents [B]; sums, so that they can be added up before dividing."""
        scores = scoring.score(self._config, self._params, self._tokenizer.document(text))
        return {
            "nll": scores.nll,
            "num_tokens": scores.num_tokens,
            "num_correct": scores.num_correct,
            "num_bytes": tf.cast(tf.strings.length(text), tf.int64),
        }

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def tokenize(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Ids of the texts [B] as the trainer saw them: bos, pieces, eos."""
        ids = self._tokenizer.document(text)
        return {"token_ids": ids.to_tensor(PAD_ID), "num_tokens": tf.cast(ids.row_lengths(), tf.int32)}

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32, "token_ids")])
    def detokenize(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """The texts [B] of ids [B, N]."""
        return {"text": self._tokenizer.text(tf.RaggedTensor.from_tensor(token_ids))}

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """By name, as they are exported."""
        return {
            "serving_default": self.generate.get_concrete_function(),
            "score": self.score.get_concrete_function(),
            "tokenize": self.tokenize.get_concrete_function(),
            "detokenize": self.detokenize.get_concrete_function(),
        }


def export(
    folder: str | Path,
    config: ModelConfig,
    params: Mapping[str, tf.Tensor],
    tokenizer_model: bytes,
    facts: Mapping[str, object],
) -> None:
    """Writes the SavedModel.

    Args:
      folder: the SavedModel's folder.
      params: trained values by name.
      tokenizer_model: serialized SentencePiece model.
      facts: JSON values that describe the training, kept beside the configuration in `assets.extra/tokenmill.json`.
    """
    exported = ExportedModel(config, params, tokenizer_model)
    tf.saved_model.save(exported, str(folder), signatures=exported.signatures())
    description = {"model": config.model_dump(), **facts}
    extra = Path(folder) / ASSETS_EXTRA
    extra.mkdir(exist_ok=True)
    (extra / MODEL_FILE).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
