"""`tokenmill generate`: the answer comes in parts and is the model's whole one."""

import shutil

import pytest
import tensorflow as tf
from typer.testing import CliRunner

from runners.cli import generate_command
from runners.cli.app import app
from tests.trainer_module.conftest import TEXT, tokenizer_model  # noqa: F401 - a fixture
from trainer_module import export
from trainer_module.config import ModelConfig
from trainer_module.parameters import init

CONFIG = ModelConfig(vocab_size=300, seq_len=64, num_layers=1, width=32, num_heads=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory, tokenizer_model):  # noqa: F811
    folder = tmp_path_factory.mktemp("generate") / "model"
    export.export(folder, CONFIG, init(CONFIG, 0), tokenizer_model, {})
    return folder


def generate(model, *arguments):
    return CliRunner().invoke(app, ["generate", "--model", str(model), *arguments])


def whole_answer(model, prompt, max_new_tokens, seed):
    loaded = tf.saved_model.load(str(model))
    answer = loaded.signatures["serving_default"](
        prompt=tf.constant([prompt]),
        max_new_tokens=tf.constant([max_new_tokens]),
        temperature=tf.constant([0.8]),
        top_k=tf.constant([0]),
        top_p=tf.constant([0.95]),
        repetition_penalty=tf.constant([1.0]),
        seed=tf.constant([seed]),
    )
    return answer["text"].numpy()[0].decode()


def test_the_answer_is_shown_as_it_comes(model, monkeypatch):
    shown, echo = [], generate_command.typer.echo
    monkeypatch.setattr(generate_command.typer, "echo", lambda *a, **k: (shown.append(a), echo(*a, **k)))
    result = generate(model, "--prompt", "def add(", "--max-new-tokens", "30", "--seed", "4")
    assert result.exit_code == 0, result.output
    expected = whole_answer(model, "def add(", 30, 4)
    assert result.stdout == f"def add({expected}\n"
    parts = [text for (text,) in filter(None, shown[1:])]
    assert len(parts) > 5 and "".join(parts) == expected


def test_a_prompt_that_does_not_fit_is_told(model):
    result = generate(model, "--prompt", TEXT, "--max-new-tokens", "40")
    assert result.exit_code == 0
    assert "tokens of the prompt did not fit and were left out" in result.stderr
    assert result.stdout.startswith(TEXT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--prompt", "a\udcff"), "the model does not take this: prompt: not valid UTF-8; encode the text as UTF-8"),
        (("--prompt", "a", "--repetition-penalty", "inf"), "the model does not take this: repetition_penalty must be"),
    ],
)
def test_what_the_model_refuses_is_one_message(model, arguments, message):
    result = generate(model, *arguments)
    assert type(result.exception).__name__ == "ConfigError"
    assert str(result.exception).startswith(message)


def test_a_model_without_the_signatures_is_named(tmp_path):
    module = tf.Module()
    module.run = tf.function(lambda x: {"y": x}, input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.run})
    result = generate(tmp_path, "--prompt", "a")
    assert type(result.exception).__name__ == "ModelError"
    assert "of an older Tokenmill, or a damaged one" in str(result.exception)


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.index", "assets.extra/tokenizer.model"])
@pytest.mark.parametrize("damage", ["truncated", "flipped byte", "missing"])
def test_a_damaged_model_is_refused_by_the_name_of_its_file(model, tmp_path, name, damage):
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    file = copy / name
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "flipped byte":
        content[len(content) // 3] ^= 4
        file.write_bytes(content)
    else:
        file.unlink()
    result = generate(copy, "--prompt", "a")
    assert type(result.exception).__name__ == "ModelError"
    assert name in str(result.exception)
    assert ("holds no SavedModel" if name == "saved_model.pb" and damage == "missing" else "another version") in str(
        result.exception
    )
