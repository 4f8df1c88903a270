"""The exported model answers strings with strings, in a process that has no code of this project."""

import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

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
                 seed=tf.range(rows))
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


def test_configuration_and_facts_travel_with_the_model(exported):
    folder, config, _ = exported
    description = json.loads((folder / "assets.extra" / "tokenmill.json").read_text())
    assert description == {"model": config.model_dump(), "validation_loss": 1.5}


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("max_new_tokens", 0, "max_new_tokens must be at least 1"),
        ("temperature", float("nan"), "temperature must be finite"),
        ("temperature", -0.5, "temperature must be finite and at least 0"),
        ("top_k", -1, "top_k must be at least 0"),
        ("top_p", 1.5, "top_p must lie between 0 and 1"),
    ],
)
def test_a_wrong_setting_is_an_invalid_argument(exported, setting, value, message):
    model = tf.saved_model.load(str(exported[0]))
    good = {"max_new_tokens": 2, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0}
    inputs = {key: tf.constant([given]) for key, given in {**good, setting: value}.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        model.signatures["serving_default"](prompt=tf.constant(["a"]), **inputs)


def test_a_batch_answers_like_its_rows(exported):
    model = tf.saved_model.load(str(exported[0]))

    def answer(prompts, seeds):
        rows = len(prompts)
        outputs = model.signatures["serving_default"](
            prompt=tf.constant(prompts),
            max_new_tokens=tf.fill([rows], 6),
            temperature=tf.fill([rows], 0.9),
            top_k=tf.fill([rows], 20),
            top_p=tf.fill([rows], 0.9),
            seed=tf.constant(seeds),
        )
        return outputs["text"].numpy().tolist()

    together = answer(TEXTS, [1, 2, 3, 4, 5])
    assert together == [answer([text], [seed])[0] for text, seed in zip(TEXTS, [1, 2, 3, 4, 5], strict=True)]
