"""Symbols of one's own, a sample of the corpus, a ready model."""

import dataclasses
import hashlib
import io

import apache_beam as beam
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from apache_beam.testing.util import assert_that

from components.tokenizer.learning import LearningOptions, LearnTokenizer, count_words_of_batch, learn_from_counts
from components.tokenizer.ready_model import read_ready_model
from foundation.errors import ConfigError
from tests.components.tokenizer.test_learning import TEXTS, counts_of
from trainer_module.tokenization import Tokenizer

SYMBOLS = ("<|user|>", "<|end|>", "\u3042\u3044")
OPTIONS = LearningOptions(vocab_size=300, split_digits=False, max_words=1000, symbols=SYMBOLS)


@pytest.fixture(scope="module")
def with_symbols():
    return learn_from_counts(counts_of([*TEXTS, "<|user|>hello<|end|>"]).items(), OPTIONS)


def test_symbols_are_one_piece_each_after_the_special_ids(with_symbols):
    processor = sentencepiece.SentencePieceProcessor(model_proto=with_symbols)
    assert [processor.piece_to_id(symbol) for symbol in SYMBOLS] == [4, 5, 6]
    assert processor.encode("<|user|>x<|end|>")[::2] == [4, 5]
    assert processor.get_piece_size() == 300


def test_text_with_symbols_round_trips_in_the_graph(with_symbols):
    tokenizer = Tokenizer(with_symbols)
    texts = ["<|user|>a <|user|> <|end|>", "<|us er|>", "<s></s><pad>", "\u3042\u3044\u3042 \u2581<|end|>\n", ""]
    documents = tokenizer.document(tf.constant(texts))
    assert [text.decode() for text in tokenizer.text(documents).numpy()] == texts
    for ids in documents.to_list():
        assert ids[0] == 2 and ids[-1] == 3 and not {0, 1, 2, 3} & set(ids[1:-1])


def test_a_sample_is_the_same_whatever_the_batches_and_about_as_large():
    texts = [f"w{number}" for number in range(2000)]
    batches = [(np.array([text.encode() for text in part], dtype=object),) for part in (texts, texts[::-1])]
    first, second = (dict(count_words_of_batch(batch, 0.25)) for batch in batches)
    one_by_one = {}
    for text in texts:
        one_by_one |= dict(count_words_of_batch((np.array([text.encode()], dtype=object),), 0.25))
    assert first == second == one_by_one
    assert 400 < len(first) < 600
    larger = dict(count_words_of_batch(batches[0], 0.5))
    assert first.keys() < larger.keys()


def test_a_ready_model_is_taken_as_it_is(tmp_path):
    model = learn_from_counts(counts_of(TEXTS).items(), dataclasses.replace(OPTIONS, symbols=()))
    path = tmp_path / "spm.model"
    path.write_bytes(model)
    assert read_ready_model(path, 300) == model
    ready = LearningOptions(300, False, 1000, model_file=str(path), model_sha256=hashlib.sha256(model).hexdigest())
    with beam.Pipeline(runner="FnApiRunner") as p:
        arrays = [(np.array([b"other text"], dtype=object),)] * 3
        models = p | beam.Create(arrays) | LearnTokenizer(ready)
        assert_that(models, lambda made: None if made == [model] else pytest.fail("another model"))


def foreign(**settings):
    """A model that somebody has learned with these settings."""
    model = io.BytesIO()
    defaults = {
        "model_type": "bpe",
        "vocab_size": 300,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
        "allow_whitespace_only_pieces": True,
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": 2,
        "eos_id": 3,
        "minloglevel": 2,
        "hard_vocab_limit": False,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 5), model_writer=model, **{**defaults, **settings}
    )
    return model.getvalue()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"vocab_size": 310}, r"it has 310 pieces, model.vocab_size is 300: set that to 310"),
        ({"pad_id": 3, "unk_id": 0, "bos_id": 1, "eos_id": 2}, r"are \(3, 0, 1, 2\), not \(0, 1, 2, 3\)"),
        ({"byte_fallback": False, "vocab_size": 60}, r"it has 0 byte pieces, not 256"),
        ({"normalization_rule_name": "nmt_nfkc"}, r"comes back as"),
        ({"add_dummy_prefix": True, "remove_extra_whitespaces": True}, r"comes back as"),
    ],
)
def test_a_model_that_would_change_text_is_refused(tmp_path, settings, expected):
    path = tmp_path / "spm.model"
    path.write_bytes(foreign(**settings))
    with pytest.raises(ConfigError, match=expected):
        read_ready_model(path, 300)


def test_what_is_no_model_is_refused(tmp_path):
    (tmp_path / "spm.model").write_bytes(b"no model")
    for name in ("spm.model", "nowhere"):
        with pytest.raises(ConfigError, match=rf"{name}: no SentencePiece model"):
            read_ready_model(tmp_path / name, 300)
