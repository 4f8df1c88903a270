"""Each check passes a sound export, and finds what it is there for in one that is broken on purpose."""

import shutil
import time

import numpy as np
import pytest
import tensorflow as tf

from components.export_validator import checks
from components.export_validator.cases import Settings, make_cases

SETTINGS = Settings(num_documents=5, tolerance=1e-3, max_answer_s=60.0, max_load_mib=None)


@pytest.fixture(scope="module")
def cases(world):
    return make_cases(
        world.model / "Format-Serving",
        world.folder / "run" / "reference.npz",
        world.folder / "examples" / "Split-eval",
        world.folder / "rows" / "Split-eval",
        [],
        SETTINGS,
    )


@pytest.fixture(scope="module")
def sound(cases):
    """Checks over the loaded model."""
    loaded = checks.Checks(cases)
    loaded.files()
    loaded.load()
    return loaded


class Broken:
    """A signature whose inputs or outputs are changed on the way."""

    def __init__(self, signature, inputs=None, outputs=None):
        self._signature, self._inputs, self._outputs = signature, inputs or dict, outputs or dict
        self.structured_input_signature = signature.structured_input_signature

    def __call__(self, **inputs):
        return self._outputs(dict(self._signature(**self._inputs(inputs))))


def changed(name, function):
    """A change of one of several tensors, by its name."""
    return lambda tensors: {**tensors, name: function(tensors[name])}


def broken(sound, signature, **how):
    """Checks over the same model with one signature broken."""
    other = checks.Checks(sound.cases)
    other.context = sound.context
    other.signatures = {name: sound.signatures[name] for name in checks.SIGNATURES}
    other.signatures[signature] = Broken(sound.signatures[signature], **how)
    return other


@pytest.mark.parametrize("name", ["tokens", "round_trip", "trainer", "score", "cached", "batched", "streamed", "times"])
def test_a_sound_export_passes(sound, name):
    assert getattr(sound, name)()


def _lower(text):
    return tf.strings.lower(text)


def _padded_to_one_length(inputs):
    """Prompts of a batch are filled up with spaces, as if padding were text."""
    lengths = tf.strings.length(inputs["prompt"])
    filling = [b" " * int(missing) for missing in tf.reduce_max(lengths) - lengths]
    return {**inputs, "prompt": tf.strings.join([inputs["prompt"], tf.constant(filling)])}


def _one_logit_off(logits):
    return logits + tf.one_hot(5, logits.shape[-1]) * 0.1


@pytest.mark.parametrize(
    ("check", "signature", "how", "found"),
    [
        ("tokens", "tokenize", {"outputs": changed("token_ids", lambda ids: ids + 1)}, "token 0 differs"),
        ("tokens", "tokenize", {"outputs": changed("num_tokens", lambda count: count - 1)}, "another number of tokens"),
        ("round_trip", "detokenize", {"outputs": changed("text", tf.strings.strip)}, "does not come back"),
        ("round_trip", "tokenize", {"inputs": changed("text", _lower)}, "does not come back"),
        ("trainer", "logits", {"outputs": changed("logits", _one_logit_off)}, "-log p differs from the trainer's"),
        ("trainer", "logits", {"outputs": changed("logits", lambda x: x * float("nan"))}, "differs from the trainer's"),
        ("score", "score", {"outputs": changed("nll", lambda nll: nll * 1.01)}, "nll per token differs"),
        ("score", "score", {"outputs": changed("num_tokens", lambda n: n + 1)}, "num_tokens is wrong"),
        ("cached", "decode", {"inputs": changed("key_0", tf.zeros_like)}, "logits differ by"),
        ("cached", "prefill", {"outputs": changed("value_1", lambda x: x * 1.1)}, "logits differ by"),
        ("batched", "serving_default", {"inputs": _padded_to_one_length}, "serving_default: "),
        ("batched", "score", {"outputs": changed("nll", lambda x: x + len(x) - 1.0)}, "score: nll differs"),
        ("batched", "tokenize", {"inputs": changed("text", lambda x: x[:1] if len(x) == 1 else x[::-1])}, "tokenize"),
        ("streamed", "decode", {"inputs": changed("seed", lambda seed: seed + 1)}, "not the whole answer"),
        ("streamed", "decode", {"outputs": changed("text", lambda x: tf.strings.substr(x, -2, 2))}, "does not go on"),
    ],
)
def test_a_broken_signature_is_found_with_an_example(sound, check, signature, how, found):
    with pytest.raises(checks.CheckError) as caught:
        getattr(broken(sound, signature, **how), check)()
    assert found in caught.value.found
    assert caught.value.example or check == "batched"


def test_a_slow_signature_is_found(sound):
    slow = broken(sound, "logits", outputs=lambda tensors: time.sleep(0.2) or tensors)
    slow.cases = {**sound.cases, "max_answer_s": 0.15}
    with pytest.raises(checks.CheckError, match=r"slower than 0.15 s: .*logits") as caught:
        slow.times()
    assert caught.value.example["logits"] >= 0.2


def test_a_missing_signature_and_too_much_memory_are_found(world, cases, tmp_path):
    greedy = checks.Checks({**cases, "max_load_mib": -1.0})
    with pytest.raises(checks.CheckError, match=r"takes .* MiB, more than -1.0"):
        greedy.load()
    module = tf.Module()
    module.score = tf.function(lambda text: {"nll": tf.zeros_like(text)}, input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(module, str(tmp_path / "bare"), signatures={"score": module.score})
    with pytest.raises(checks.CheckError, match="signatures are missing: serving_default, prefill, decode, logits"):
        checks.Checks({**cases, "model": str(tmp_path / "bare")}).load()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("saved_model.pb", "saved_model.pb is not what was exported"),
        ("variables/variables.data-00000-of-00001", "variables.data-00000-of-00001 is not what was exported"),
        ("assets.extra/tokenizer.model", "tokenizer.model is not what was exported"),
    ],
)
def test_a_changed_byte_or_a_missing_file_is_found(world, cases, tmp_path, name, message):
    copy = tmp_path / "copy"
    shutil.copytree(world.model / "Format-Serving", copy)
    altered = checks.Checks({**cases, "model": str(copy)})
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(checks.CheckError, match=message):
        altered.files()
    (copy / name).unlink()
    with pytest.raises(checks.CheckError, match=message) as caught:
        altered.files()
    assert caught.value.example["found"] == "missing"


def test_another_tokenizer_than_that_of_the_rows_is_found(cases):
    with pytest.raises(checks.CheckError, match="not the one that made the trainer's rows"):
        checks.Checks({**cases, "tokenizer_sha256": "0" * 64}).files()


def test_windows_count_every_token_but_the_first_once(sound, monkeypatch):
    monkeypatch.setattr(checks.Checks, "_nll", lambda self, ids: np.array(ids[1:]))
    for length in (2, 3, 32, 33, 34, 56, 57, 58, 59, 100, 200):
        assert list(sound._windows(list(range(length)))) == list(range(1, length))
