"""The exported model answers strings with strings, in a process that has no code of this project."""

import hashlib
import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf
from tensorflow.python.saved_model import loader_impl

from tests.trainer_module.conftest import TEXT
from trainer_module import export, scoring
from trainer_module.parameters import init
from trainer_module.tokenization import Tokenizer

TEXTS = ["", "a", TEXT, TEXT * 3, "käse \u2581 한국"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory, tokenizer_model):
    from trainer_module.config import ModelConfig

    config = ModelConfig(vocab_size=300, seq_len=16, num_layers=2, width=32, num_heads=4, num_kv_heads=2)
    folder = tmp_path_factory.mktemp("export") / "model"
    params = init(config, 0)
    export.export(folder, config, params, tokenizer_model, {"validation_loss": 1.5})
    return folder, config, params


CLIENT = """
import json, sys
import tensorflow as tf, tensorflow_text
for name in ("trainer_module", "foundation", "components"):
    try:
        __import__(name)
    except ImportError:
        continue
    sys.exit(name + " can be imported: the test proves nothing")
model = tf.saved_model.load(sys.argv[1])
texts = json.loads(sys.argv[2])
call = lambda name, **inputs: {k: v.numpy() for k, v in model.signatures[name](**inputs).items()}
rows = len(texts)
generated = call("serving_default", prompt=tf.constant(texts), max_new_tokens=tf.fill([rows], 5),
                 temperature=tf.ones([rows]), top_k=tf.zeros([rows], tf.int32), top_p=tf.ones([rows]),
                 repetition_penalty=tf.ones([rows]), seed=tf.range(rows))
scores = call("score", text=tf.constant(texts))
tokens = call("tokenize", text=tf.constant(texts))
back = call("detokenize", token_ids=tf.constant(tokens["token_ids"]))
print(json.dumps({
    "scores": {k: v.tolist() for k, v in scores.items()},
    "token_ids": [row[:n].tolist() for row, n in zip(tokens["token_ids"], tokens["num_tokens"])],
    "back": [text.decode() for text in back["text"]],
    "num_generated": generated["num_tokens"].tolist(),
    "generated_is_text": all(isinstance(text, bytes) for text in generated["text"]),
}))
"""


def test_a_process_without_the_project_uses_every_signature(exported, tokenizer_model, tmp_path):
    folder, config, params = exported
    # -P and -S would take the environment's packages away, too; an empty path entry is all that must go.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    blocker = tmp_path / "blocked"
    for name in ("trainer_module", "foundation", "components"):
        (blocker / name).mkdir(parents=True)
        (blocker / name / "__init__.py").write_text("raise ImportError('hidden from this test')")
    environment["PYTHONPATH"] = str(blocker)
    result = subprocess.run(
        [sys.executable, "-c", CLIENT, str(folder), json.dumps(TEXTS)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    answer = json.loads(result.stdout.splitlines()[-1])
    documents = Tokenizer(tokenizer_model).document(tf.constant(TEXTS))
    expected = scoring.score(config, params, documents)
    assert answer["token_ids"] == documents.to_list()
    assert answer["back"] == TEXTS
    assert answer["scores"]["nll"] == pytest.approx(expected.nll.numpy().tolist(), rel=1e-5)
    assert answer["scores"]["num_tokens"] == [len(ids) - 1 for ids in documents.to_list()]
    assert answer["scores"]["num_bytes"] == [len(text.encode()) for text in TEXTS]
    assert all(0 <= count <= 5 for count in answer["num_generated"]) and answer["generated_is_text"]


def test_what_made_the_model_travels_with_it(exported, tokenizer_model):
    folder, config, _ = exported
    extra = folder / "assets.extra"
    description = json.loads((extra / "tokenmill.json").read_text())
    assert description == {"model": config.model_dump(), "validation_loss": 1.5}
    assert (extra / "tokenizer.model").read_bytes() == tokenizer_model
    checksums = json.loads((extra / "checksums.json").read_text())
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert set(checksums) == files - {"assets.extra/checksums.json"}
    assert checksums["assets.extra/tokenizer.model"] == hashlib.sha256(tokenizer_model).hexdigest()


GOOD = {"max_new_tokens": 6, "temperature": 0.9, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.1, "seed": 0}
FLOATS = ("temperature", "top_p", "repetition_penalty")


def request(prompts, **settings):
    """Inputs of `serving_default` and `prefill`: a value for all, or one a row."""
    rows = {
        name: tf.broadcast_to(tf.constant(value, tf.float32 if name in FLOATS else tf.int32), [len(prompts)])
        for name, value in {**GOOD, **settings}.items()
    }
    return {"prompt": tf.constant(prompts, tf.string), **rows}


@pytest.fixture(scope="module")
def signatures(exported):
    model = tf.saved_model.load(str(exported[0]))
    yield model.signatures  # which holds the model no longer than somebody else does
    del model


@pytest.mark.parametrize("signature", ["serving_default", "prefill"])
@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("max_new_tokens", 0, "max_new_tokens must be at least 1"),
        ("max_new_tokens", -1, "max_new_tokens must be at least 1"),
        ("temperature", float("nan"), "temperature must be finite"),
        ("temperature", -0.5, "temperature must be finite and at least 0"),
        ("top_k", -1, "top_k must be at least 0"),
        ("top_p", 1.5, "top_p must lie between 0 and 1"),
        ("repetition_penalty", 0.0, "repetition_penalty must be finite and above 0"),
    ],
)
def test_a_wrong_setting_is_an_invalid_argument(signatures, signature, setting, value, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        signatures[signature](**request(["a"], **{setting: value}))


@pytest.mark.parametrize("prompt", [b"\xff", b"a\xed\xa0\x80", b"\xe2\x82", b"ok\xc0\x80"])
def test_a_prompt_that_is_not_utf8_is_an_invalid_argument(signatures, prompt):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"prompt: not valid UTF-8; .*0:.*\[1\]"):
        signatures["serving_default"](**request(["good", prompt]))


def test_inputs_of_different_lengths_are_an_invalid_argument(signatures):
    inputs = {**request(["a", "b"]), "seed": tf.constant([1])}
    with pytest.raises(tf.errors.InvalidArgumentError, match="seed must have one value for each prompt"):
        signatures["serving_default"](**inputs)


@pytest.mark.parametrize("ids", [[[300]], [[5, -1]]])
@pytest.mark.parametrize("signature", ["detokenize", "logits"])
def test_ids_beyond_the_vocabulary_are_an_invalid_argument(signatures, signature, ids):
    with pytest.raises(tf.errors.InvalidArgumentError, match="token_ids must lie between 0 and 299"):
        signatures[signature](token_ids=tf.constant(ids))


def test_more_ids_than_the_context_are_an_invalid_argument(signatures):
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than the context of 16 tokens"):
        signatures["logits"](token_ids=tf.ones([1, 17], tf.int32))


@pytest.mark.parametrize("prompt", ["\ufeffmark", "nul \0 in it", "\ufffd \ufffe \U0010ffff", "\u2581\x1aa"])
def test_any_utf8_is_a_prompt(signatures, prompt):
    assert signatures["serving_default"](**request([prompt]))["num_tokens"].numpy()[0] > 0


def test_text_that_is_not_utf8_is_scored_as_it_would_have_been_trained_on(signatures):
    broken, mended = (signatures["tokenize"](text=tf.constant([text])) for text in (b"a\xffb", "a\ufffdb".encode()))
    assert broken["token_ids"].numpy().tolist() == mended["token_ids"].numpy().tolist()


def test_every_signature_takes_a_batch_of_nothing(signatures):
    none = {name: value[:0] for name, value in request(["a"]).items()}
    assert signatures["serving_default"](**none)["text"].shape == [0]
    for name in ("score", "tokenize"):
        assert signatures[name](text=none["prompt"])["num_tokens"].shape == [0]
    assert signatures["detokenize"](token_ids=tf.zeros([0, 0], tf.int32))["text"].shape == [0]
    assert signatures["logits"](token_ids=tf.zeros([0, 3], tf.int32))["logits"].shape == [0, 3, 300]


def test_a_batch_answers_like_its_rows(signatures):
    seeds = [1, 2, 3, 4, 5]
    together = signatures["serving_default"](**request(TEXTS, seed=seeds))
    for row, text in enumerate(TEXTS):
        alone = signatures["serving_default"](**request([text], seed=seeds[row]))
        assert {name: value[0] for name, value in _values(alone).items()} == {
            name: value[row] for name, value in _values(together).items()
        }


def _values(answer):
    return {name: value.numpy().tolist() for name, value in answer.items()}


def test_an_answer_says_what_the_model_saw_and_why_it_ended(signatures, tokenizer_model):
    length = len(Tokenizer(tokenizer_model).prompt(tf.constant([TEXT])).to_list()[0])
    answer = _values(signatures["serving_default"](**request(["", TEXT, ""], max_new_tokens=[3, 3, 2**31 - 1])))
    assert answer["prompt_tokens"] == [1, 13, 1]
    assert answer["prompt_tokens_dropped"] == [0, length - 13, 0]
    for reason, count, most, full in zip(
        answer["finish_reason"], answer["num_tokens"], (3, 3, 15), (b"length", b"length", b"context"), strict=True
    ):
        assert (reason == full and count == most) or (reason == b"eos" and count < most)


def test_a_stream_is_the_whole_answer_in_parts(signatures):
    """Each text begins with the one before; the last is what serving_default says."""
    inputs = request(TEXTS, seed=[1, 2, 3, 4, 5], temperature=2.0, top_k=0, top_p=1.0, max_new_tokens=15)
    whole = _values(signatures["serving_default"](**inputs))
    names = set(signatures["decode"].structured_input_signature[1]) - {"num_steps"}
    state, texts = signatures["prefill"](**inputs), [b""] * len(TEXTS)
    assert names < set(state)
    for _ in range(16):
        if all(state["finish_reason"].numpy()):
            break
        state = signatures["decode"](num_steps=tf.constant(1), **{name: state[name] for name in names})
        assert all(after.startswith(before) for before, after in zip(texts, state["text"].numpy(), strict=True))
        texts = state["text"].numpy().tolist()
    assert {name: _values(state)[name] for name in whole} == whole
    assert any("\ufffd" in text.decode() for text in texts)  # bytes that are no characters were among them


def test_rows_of_a_state_can_be_taken_out(signatures):
    inputs = request(TEXTS, seed=[1, 2, 3, 4, 5])
    names = set(signatures["decode"].structured_input_signature[1]) - {"num_steps"}
    state = signatures["prefill"](**inputs)
    kept = {name: tf.gather(state[name], [3, 1]) for name in names}
    some = signatures["decode"](num_steps=tf.constant(15), **kept)["text"].numpy().tolist()
    whole = signatures["serving_default"](**inputs)["text"].numpy().tolist()
    assert some == [whole[3], whole[1]]


def test_one_graph_for_all_and_none_that_xla_compiles(exported):
    """So stock TensorFlow Serving, which has XLA off and SentencePiece's ops built in, runs it, and no length costs a
    compilation."""
    graph = loader_impl.parse_saved_model(str(exported[0])).meta_graphs[0]
    compiled = [function.signature.name for function in graph.graph_def.library.function if _is_compiled(function)]
    assert compiled == []
    ops = {node.op for function in graph.graph_def.library.function for node in function.node_def}
    ops |= {node.op for node in graph.graph_def.node}
    foreign = {op for op in ops if not hasattr(tf.raw_ops, op)}
    assert foreign == {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}
    inputs = graph.signature_def["serving_default"].inputs
    assert set(inputs) == {"prompt", *GOOD}
    assert all([dim.size for dim in info.tensor_shape.dim] == [-1] for info in inputs.values())


def _is_compiled(function):
    return any(holder.attr["_XlaMustCompile"].b for holder in (function, *function.node_def))
