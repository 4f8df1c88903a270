"""The exported model: one SavedModel, strings in and strings out.

Signatures, each over a batch of any size (B), a row alone or beside others giving the same answer:

    serving_default  prompt, SAMPLING                -> ANSWER
    prefill          prompt, SAMPLING                -> STATE
    decode           STATE, num_steps                -> STATE, ANSWER
    score            text                            -> nll, num_tokens, num_correct, num_bytes
    logits           token_ids (0 is padding)        -> logits
    tokenize         text                            -> token_ids (padded with 0), num_tokens
    detokenize       token_ids (0 is padding)        -> text

SAMPLING, one value a row, all required (`trainer_module.sampling.Sampling` says what each does):
    max_new_tokens int32, temperature float32, top_k int32, top_p float32, repetition_penalty float32, seed int32

ANSWER:
    text                   string: what follows the prompt, which it does not repeat
    num_tokens             int32: tokens made, without the eos
    prompt_tokens          int32: tokens of the prompt that the model saw, bos included
    prompt_tokens_dropped  int32: tokens cut off the front of a prompt too long (`generation.prefill` says when)
    finish_reason          string: `eos`, `length` (max_new_tokens), `context` (full), or empty: not finished

STATE is every input of `decode` but num_steps; a client need not know them, only hand them on:

    state = prefill(prompt=..., max_new_tokens=..., ...)
    while not all(state["finish_reason"]):
        state = decode(num_steps=8, **{name: state[name] for name in INPUTS_OF_DECODE if name != "num_steps"})
        ...  # state["text"] is all the text so far: each begins with the one before

`prefill` gives finish_reason, too (empty). num_steps is an int32 scalar: tokens to make for each row that has not
finished. Whatever the cuts, the last `text` equals that of `serving_default`, and the whole costs what it does.
A text that is not finished ends before a character whose bytes are not all there. Rows of a state may be
taken out or put together (all first dimensions are B) among states of the same prefill; states of different ones
have caches of different lengths, so a server does not batch `decode` across them.

`score` reads whole documents in windows of the model's context (`trainer_module.scoring`), every token after
the first once; its sums add up over documents. It is what TensorFlow Model Analysis reads. `logits` is the
plain forward pass, [B, N] ids of one text a row, N at most the context, to [B, N, V] float32.

An impossible value is InvalidArgument, with its name: max_new_tokens < 1, temperature negative or NaN, top_k
< 0, top_p outside 0 .. 1, repetition_penalty <= 0, a prompt that is not UTF-8, ids beyond the vocabulary,
inputs of different lengths. An empty prompt begins a document. max_new_tokens beyond the context ends with
finish_reason `context`. In `score` and `tokenize` bytes that are not UTF-8 count as U+FFFD, as in training.

There is one graph for all lengths and batches, and none is compiled by XLA. It needs no code of this project to
load, only the SentencePiece op: TensorFlow Serving has it built in; in Python `import tensorflow_text` comes
first. Beside it in `assets.extra`: `tokenmill.json` (configuration, what its training came to), `tokenizer.model`
(SentencePiece) and `checksums.json` (SHA-256 of every other file).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from foundation.export_files import ASSETS_EXTRA, CHECKSUMS_FILE, sha256_of
from foundation.special_tokens import PAD_ID
from trainer_module import generation, model, sampling, scoring
from trainer_module.config import ModelConfig
from trainer_module.generation import State
from trainer_module.sampling import Sampling
from trainer_module.tokenization import Tokenizer, check_utf8

MODEL_FILE = "tokenmill.json"
"""In `assets.extra`: the model's configuration and what its trainer knew of it."""

TOKENIZER_FILE = "tokenizer.model"

NUM_STEPS = "num_steps"
FINISH_REASONS = ("", "eos", "length", "context")
"""By `State.finish`."""

_SAMPLING_SPECS = {
    "max_new_tokens": tf.TensorSpec([None], tf.int32, "max_new_tokens"),
    "temperature": tf.TensorSpec([None], tf.float32, "temperature"),
    "top_k": tf.TensorSpec([None], tf.int32, "top_k"),
    "top_p": tf.TensorSpec([None], tf.float32, "top_p"),
    "repetition_penalty": tf.TensorSpec([None], tf.float32, "repetition_penalty"),
    "seed": tf.TensorSpec([None], tf.int32, "seed"),
}
_TEXT = tf.TensorSpec([None], tf.string, "text")
_IDS = tf.TensorSpec([None, None], tf.int32, "token_ids")


class ExportedModel(tf.Module):
    """Weights, tokenizer and the functions that serve them.

    The functions are plain methods, made graphs by `signatures`: attributes that are graphs would be traced and saved
    a second time beside them, which doubles the file and the time to write and load it.
    """

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

    def generate(self, prompt: tf.Tensor, **settings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Continues prompts [B]."""
        prompt_ids, settings_of_rows = self._request(prompt, settings)
        return self._answer(generation.generate(self._config, self._params, prompt_ids, settings_of_rows))

    def prefill(self, prompt: tf.Tensor, **settings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Reads prompts [B]; the state from which `decode` goes on."""
        prompt_ids, settings_of_rows = self._request(prompt, settings)
        state = generation.prefill(self._config, self._params, prompt_ids, settings_of_rows)
        return {**_as_tensors(state), "finish_reason": _finish_reason(state)}

    def decode(self, num_steps: tf.Tensor, **tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        """Makes up to `num_steps` more tokens a row."""
        state = generation.decode(self._config, self._params, _as_state(self._config, tensors), num_steps)
        return {**_as_tensors(state), **self._answer(state)}

    def score(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """How well the model predicts whole documents [B]; sums, so that they can be added up before dividing."""
        scores = scoring.score(self._config, self._params, self._tokenizer.document(text))
        return {
            "nll": scores.nll,
            "num_tokens": scores.num_tokens,
            "num_correct": scores.num_correct,
            "num_bytes": tf.cast(tf.strings.length(text), tf.int64),
        }

    def logits(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Logits of what follows each token of the texts [B, N]."""
        length = tf.shape(token_ids)[1]
        checks = [
            tf.debugging.assert_less_equal(
                length, self._config.seq_len, f"token_ids: more than the context of {self._config.seq_len} tokens"
            ),
            *self._known(token_ids),
        ]
        with tf.control_dependencies(checks):
            padded = tf.pad(token_ids, [[0, 0], [0, self._config.seq_len - length]], constant_values=PAD_ID)
        padded = tf.ensure_shape(padded, [None, self._config.seq_len])
        # One segment, padding included: what follows a token is not seen by it.
        hidden = model.hidden_states(self._config, self._params, padded, tf.ones_like(padded))
        return {"logits": model.output_logits(self._config, self._params, hidden[:, :length])}

    def tokenize(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Ids of the texts [B] as the trainer saw them: bos, pieces, eos."""
        ids = self._tokenizer.document(text)
        return {"token_ids": ids.to_tensor(PAD_ID), "num_tokens": tf.cast(ids.row_lengths(), tf.int32)}

    def detokenize(self, token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """The texts [B] of ids [B, N]."""
        with tf.control_dependencies(self._known(token_ids)):
            return {"text": self._tokenizer.text(tf.RaggedTensor.from_tensor(token_ids))}

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """By name, as they are exported."""
        prompt = tf.TensorSpec([None], tf.string, "prompt")
        num_steps = tf.TensorSpec([], tf.int32, NUM_STEPS)
        request = {"prompt": prompt, **_SAMPLING_SPECS}
        return {
            "serving_default": _graph(self.generate, request),
            "prefill": _graph(self.prefill, request),
            "decode": _graph(self.decode, {NUM_STEPS: num_steps, **_state_specs(self._config)}),
            "score": _graph(self.score, {"text": _TEXT}),
            "logits": _graph(self.logits, {"token_ids": _IDS}),
            "tokenize": _graph(self.tokenize, {"text": _TEXT}),
            "detokenize": _graph(self.detokenize, {"token_ids": _IDS}),
        }

    def _request(self, prompt: tf.Tensor, settings: dict[str, tf.Tensor]) -> tuple[tf.RaggedTensor, Sampling]:
        """Checks what a client has given; ids of its prompts."""
        settings_of_rows = Sampling(**settings)
        checks = [*sampling.check(settings_of_rows, tf.shape(prompt)[0]), check_utf8(prompt, "prompt")]
        with tf.control_dependencies(checks):
            prompt = tf.identity(prompt)
        return self._tokenizer.prompt(prompt), settings_of_rows

    def _answer(self, state: State) -> dict[str, tf.Tensor]:
        is_finished = state.finish != generation.GOING_ON
        return {
            "text": self._tokenizer.text_so_far(generation.generated_ids(state), is_finished),
            "num_tokens": state.num_tokens,
            "prompt_tokens": state.prompt_tokens,
            "prompt_tokens_dropped": state.prompt_tokens_dropped,
            "finish_reason": _finish_reason(state),
        }

    def _known(self, token_ids: tf.Tensor) -> list[tf.Operation]:
        size = self._config.vocab_size
        inside = (token_ids >= 0) & (token_ids < size)
        return [tf.debugging.assert_equal(inside, True, f"token_ids must lie between 0 and {size - 1}")]


def _graph(
    function: Callable[..., dict[str, tf.Tensor]], inputs: Mapping[str, tf.TensorSpec]
) -> tf.types.experimental.ConcreteFunction:
    return tf.function(function, autograph=False).get_concrete_function(**inputs)


def _finish_reason(state: State) -> tf.Tensor:
    return tf.gather(tf.constant(FINISH_REASONS), state.finish)


def _as_tensors(state: State) -> dict[str, tf.Tensor]:
    """The state under the names of `decode`'s inputs."""
    fields = state._asdict()
    settings, caches = fields.pop("sampling"), fields.pop("caches")
    return {**settings._asdict(), **fields, **{_cache_name(index): cache for index, cache in enumerate(caches)}}


def _as_state(config: ModelConfig, tensors: Mapping[str, tf.Tensor]) -> State:
    fields: dict[str, Any] = {name: tensors[name] for name in State._fields if name not in ("sampling", "caches")}
    caches = [tensors[_cache_name(index)] for index in range(2 * config.num_layers)]
    return State(sampling=Sampling(**{name: tensors[name] for name in Sampling._fields}), caches=caches, **fields)


def _cache_name(index: int) -> str:
    return f"{('key', 'value')[index % 2]}_{index // 2}"


def _state_specs(config: ModelConfig) -> dict[str, tf.TensorSpec]:
    vocab = config.vocab_size
    shapes: dict[str, tuple[list[int | None], tf.DType]] = {
        "prompt_tokens": ([None], tf.int32),
        "prompt_tokens_dropped": ([None], tf.int32),
        "token_ids": ([None, None], tf.int32),
        "num_tokens": ([None], tf.int32),
        "finish": ([None], tf.int32),
        "seen": ([None, vocab], tf.bool),
        "logits": ([None, vocab], tf.float32),
    }
    for index in range(2 * config.num_layers):
        shapes[_cache_name(index)] = ([None, config.kv_heads, None, config.head_dim], tf.float32)
    return {**_SAMPLING_SPECS, **{name: tf.TensorSpec(shape, dtype, name) for name, (shape, dtype) in shapes.items()}}


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
    # Nobody trains what is served: without the gradients of attention it is smaller.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(exported, str(folder), signatures=exported.signatures(), options=options)
    description = {"model": config.model_dump(), **facts}
    extra = Path(folder) / ASSETS_EXTRA
    extra.mkdir(exist_ok=True)
    (extra / MODEL_FILE).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    (extra / TOKENIZER_FILE).write_bytes(tokenizer_model)
    checksums = json.dumps(_checksums(Path(folder)), indent=2)
    (extra / CHECKSUMS_FILE).write_text(checksums + "\n", encoding="utf-8")


def _checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file, by its path relative to `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in files}
