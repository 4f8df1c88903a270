"""What a failure comes down to: one line, one exit code."""

import pytest

from foundation.errors import CorpusError, TrainingError
from runners.local.failure import explain


def raised(function):
    with pytest.raises(Exception) as caught:
        function()
    return caught.value


def test_our_errors_speak_for_themselves():
    assert explain(TrainingError("the loss is nan; lower it")) == ("the loss is nan; lower it", 5)


def test_our_error_is_found_behind_those_that_wrapped_it():
    def wrapped():
        try:
            raise CorpusError("shard 3 is damaged")
        except CorpusError as error:
            raise RuntimeError("executor failed") from error

    assert explain(raised(wrapped)) == ("shard 3 is damaged", 3)


def test_our_error_is_found_in_the_text_that_beam_makes_of_it():
    text = (
        "Traceback (most recent call last):\n  File x\n"
        "foundation.errors.CorpusError: tokenizer: too few words; lower model.vocab_size "
        "[while running 'Analyze/LearnPieces']"
    )
    assert explain(RuntimeError(text)) == ("tokenizer: too few words; lower model.vocab_size", 3)


def test_any_other_error_gives_its_last_line():
    assert explain(ValueError("first\nsecond\n")) == ("ValueError: second", 7)
    assert explain(ValueError()) == ("ValueError: ", 7)
