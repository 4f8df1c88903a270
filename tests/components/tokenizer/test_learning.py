"""The same words give the same tokenizer, whatever their order; what cannot be learned says so."""

import collections

import apache_beam as beam
import numpy as np
import pytest
import sentencepiece
from apache_beam.testing.util import assert_that

from components.tokenizer.learning import LearningOptions, LearnTokenizer, count_words_of_batch, learn_from_counts
from foundation.errors import CorpusError

TEXTS = [
    "def add(left, right):\n    return left + right\n",
    "class Box:\n    def __init__(self):\n        self.items = [1, 22, 333]\n",
    "while True:\n    total = add(total, 1)\n",
    "\ud55c\uad6d\uc5b4 caf\u00e9 \u2581 x\n",
]
OPTIONS = LearningOptions(vocab_size=300, split_digits=False, max_words=1000)


def counts_of(texts):
    counts = collections.Counter()
    for text in texts:
        counts.update(dict(count_words_of_batch((np.array([text.encode()], dtype=object),))))
    return counts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("return x", ["return", " x"]),
        ("        return x", ["       ", " return", " x"]),
        ("a\tb\nc\r\n", ["a", "b", "c"]),
        ("f(x) += 1", ["f", "(", "x", ")", " +=", " 1"]),
        ("end   ", ["end", "   "]),
        ("\u2581", ["\x1a", "b"]),  # escaped: SentencePiece must never see the marker
        ("", []),
    ],
)
def test_words_keep_the_space_before_them(text, words):
    assert counts_of([text]) == collections.Counter(words)


def test_counts_add_up_over_a_batch_and_leave_out_monsters():
    batch = np.array([[b"a a b"], [b"a " + b"x" * 65]], dtype=object)
    assert dict(count_words_of_batch((batch,))) == {"a": 2, " a": 1, " b": 1}


def test_the_same_counts_give_the_same_bytes_in_any_order():
    counts = list(counts_of(TEXTS).items())
    assert learn_from_counts(counts, OPTIONS) == learn_from_counts(counts[::-1], OPTIONS)


def test_beam_gives_the_same_bytes_for_any_bundling():
    expected = learn_from_counts(counts_of(TEXTS).items(), OPTIONS)

    def is_expected(models):
        assert models == [expected]

    for batches in ([TEXTS], [[text] for text in TEXTS[::-1]]):
        with beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions(["--runner=DirectRunner"])) as p:
            arrays = [(np.array([text.encode() for text in batch], dtype=object),) for batch in batches]
            models = p | beam.Create(arrays) | beam.Reshuffle() | LearnTokenizer(OPTIONS)
            assert_that(models, is_expected)


def test_only_the_most_frequent_words_are_learned_from():
    few = LearningOptions(vocab_size=266, split_digits=False, max_words=1)
    texts = ["abab abab abab", "zq"]
    with beam.Pipeline(options=beam.options.pipeline_options.PipelineOptions(["--runner=DirectRunner"])) as p:
        arrays = [(np.array([text.encode() for text in texts], dtype=object),)]
        model = p | beam.Create(arrays) | LearnTokenizer(few)
        assert_that(model, lambda models: _assert_no_piece_with("zq", models[0]))


def _assert_no_piece_with(characters, model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    learned = [processor.id_to_piece(i) for i in range(260, processor.get_piece_size())]
    assert learned and not set("".join(learned)) & set(characters)


def test_digits_can_be_split():
    words = ("alpha", "beta", "heap", "plate", "table", "help", "bell", "tall", "1234")
    counts = {f" {word}": 50 if word == "1234" else 10 for word in words}.items()
    for split, expected in ((True, 5), (False, 1)):  # the space, four digits
        model = learn_from_counts(counts, LearningOptions(vocab_size=284, split_digits=split, max_words=100))
        pieces = sentencepiece.SentencePieceProcessor(model_proto=model).encode(" 1234", out_type=str)
        assert len(pieces) == expected, pieces


def test_rare_characters_are_left_to_bytes_where_they_do_not_fit():
    """2,000 different characters and room for 5: the frequent ones get pieces, all can be written."""
    rare = {chr(0x4E00 + i): 1 for i in range(2000)}
    model = learn_from_counts([*rare.items(), (" hello", 100)], LearningOptions(270, False, 10_000))
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    text = " hello" + "".join(rare)
    assert processor.decode(processor.encode(text)) == text
    assert processor.unk_id() not in processor.encode(text)
    assert processor.encode(" hello", out_type=str) == ["\u2581hello"]


def test_a_vocabulary_larger_than_the_corpus_can_fill_is_an_error_with_the_largest_that_works():
    with pytest.raises(
        CorpusError, match=r"too few for model.vocab_size 5000; set model.vocab_size to (\d+) or less"
    ) as e:
        learn_from_counts(counts_of(TEXTS).items(), LearningOptions(5000, False, 1000))
    largest = int(str(e.value).split("set model.vocab_size to ")[1].split()[0])
    learn_from_counts(counts_of(TEXTS).items(), LearningOptions(largest, False, 1000))
