"""The standard TFX Evaluator, run with our metrics and thresholds on a model scored by hand.

The toy model takes 0.01 n^2 nats for a text of n bytes, in n // 2 + 1 tokens of which n // 4 are right:

    alpha   100 bytes   100    nats   51 tokens   25 right
    alpha    20 bytes     4    nats   11 tokens    5 right
    12        7 bytes     0.49 nats    4 tokens    1 right
    empty     0 bytes     0    nats    1 token     0 right
    sum     127 bytes   104.49 nats   67 tokens   31 right
"""

import math

import pytest

from components.evaluator.eval_config import make_eval_config
from components.evaluator.results import (
    SliceMetrics,
    Verdict,
    load_results,
    load_verdict,
)
from foundation.errors import ModelError
from tests.components.evaluator import toys

DOCUMENTS: list[toys.Document] = [
    ("a1", "x" * 100, "alpha"),
    ("a2", "y" * 20, "alpha"),
    ("b1", "z" * 7, "12"),
    ("c1", "", "empty"),
]
NATS = 0.01


def _config(bound: float = 8.0, increase: float | None = 0.1, slices: bool = True):
    return make_eval_config(
        max_bits_per_byte=bound,
        slice_by_source=slices,
        code_hash="0123",
        max_bits_per_byte_increase=increase,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> tuple[str, str]:
    """Without a baseline, although a change threshold is configured."""
    return toys.evaluate(tmp_path_factory.mktemp("alone"), DOCUMENTS, _config(), NATS)


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> tuple[str, str]:
    """With a baseline that needs 0.008 n^2 nats: 0.9496 bits per byte, 0.2374 fewer than the candidate."""
    return toys.evaluate(
        tmp_path_factory.mktemp("compared"),
        DOCUMENTS,
        _config(),
        NATS,
        baseline_nats=0.008,
    )


def test_metrics_are_sums_then_quotients(alone):
    """Quotients of sums over documents: averages over documents or batches would give other values."""
    results = load_results(alone[0])
    overall = results.overall
    assert (overall.num_documents, overall.num_bytes, overall.num_tokens) == (
        4,
        127,
        67,
    )
    assert overall.bits_per_byte == pytest.approx(1.186985864, rel=1e-7)  # 104.49 / ln 2 / 127
    assert overall.perplexity == pytest.approx(4.756690905, rel=1e-7)  # exp(104.49 / 67)
    assert overall.token_accuracy == pytest.approx(31 / 67)
    assert overall.num_not_finite == 0
    assert results.baseline is None


def test_slices_by_source(alone):
    """Each source by itself, in the order of names, be it one document or one without a byte."""
    twelve, alpha, empty = load_results(alone[0]).by_source
    assert twelve == SliceMetrics(
        source="12",
        perplexity=pytest.approx(1.130319114, rel=1e-7),  # exp(0.49 / 4)
        bits_per_byte=pytest.approx(0.100988649, rel=1e-6),  # 0.49 / ln 2 / 7
        token_accuracy=0.25,
        num_tokens=4,
        num_bytes=7,
        num_documents=1,
        num_not_finite=0,
    )
    assert (alpha.source, alpha.num_documents) == ("alpha", 2)
    assert alpha.bits_per_byte == pytest.approx(1.250335702, rel=1e-7)  # 104 / ln 2 / 120
    assert (empty.source, empty.num_bytes, empty.num_tokens, empty.perplexity) == (
        "empty",
        0,
        1,
        1.0,
    )
    assert math.isnan(empty.bits_per_byte)


def test_without_baseline_value_thresholds_decide(alone):
    """A slice without bytes does not spoil the verdict; a change threshold waits for a baseline."""
    assert load_verdict(*alone) == Verdict(True, ["overall: bits_per_byte 1.1870 is at most 8.0000"])


def test_baseline_is_measured_beside_the_candidate(alone, compared):
    results = load_results(compared[0])
    assert results.overall == load_results(alone[0]).overall
    assert results.baseline is not None
    assert results.baseline.overall.bits_per_byte == pytest.approx(0.949588693, rel=1e-6)  # 83.592 / ln 2 / 127
    assert [each.source for each in results.baseline.by_source] == [
        "12",
        "alpha",
        "empty",
    ]


def test_worse_than_the_baseline_is_refused(compared):
    assert load_verdict(*compared) == Verdict(
        False,
        ["overall: bits_per_byte 1.1870 is 0.2374 above the baseline's 0.9496; at most 0.1000 above it is allowed"],
    )


def test_better_than_the_baseline_is_blessed(tmp_path):
    verdict = load_verdict(*toys.evaluate(tmp_path, DOCUMENTS, _config(slices=False), NATS, baseline_nats=0.02))
    assert verdict.blessed
    assert verdict.reasons == [
        "overall: bits_per_byte 1.1870 is at most 8.0000",
        "overall: bits_per_byte 1.1870 is 1.1870 below the baseline's 2.3740; at most 0.1000 above it is allowed",
    ]


def test_above_the_bound_is_refused(tmp_path):
    uris = toys.evaluate(tmp_path, DOCUMENTS, _config(bound=1.15, slices=False), NATS)
    assert load_verdict(*uris) == Verdict(False, ["overall: bits_per_byte 1.1870 is above 1.1500, by 0.0370"])
    assert load_results(uris[0]).by_source == ()


def test_one_score_that_is_no_number_refuses_the_model(tmp_path):
    """NaN neither crashes the evaluation nor passes, and the verdict names it."""
    uris = toys.evaluate(tmp_path, [*DOCUMENTS, ("d1", f"so {toys.BROKEN}", "alpha")], _config(), NATS)
    assert load_verdict(*uris) == Verdict(
        False,
        ["overall: bits_per_byte is not a number: the scores of 1 of 5 documents are not finite"],
    )
    results = load_results(uris[0])
    assert math.isnan(results.overall.perplexity) and math.isnan(results.overall.token_accuracy)
    assert [each.num_not_finite for each in results.by_source] == [0, 1, 0]
    assert results.by_source[0].bits_per_byte == pytest.approx(0.100988649, rel=1e-6)


def test_scores_no_model_can_reach_are_refused(tmp_path):
    verdict = load_verdict(*toys.evaluate(tmp_path, DOCUMENTS, _config(slices=False), nats=-0.01))
    assert verdict == Verdict(
        False,
        ["overall: bits_per_byte -1.1870 is below 0.0000, which no model can reach: the signature `score` is wrong"],
    )


def test_no_document_is_a_refusal(tmp_path):
    uris = toys.evaluate(tmp_path, [], _config(), NATS)
    assert load_verdict(*uris) == Verdict(False, ["no document was evaluated"])
    with pytest.raises(ModelError, match="found no document"):
        load_results(uris[0])


def test_a_blessing_without_decision_is_an_error(alone, tmp_path):
    with pytest.raises(ModelError, match="neither BLESSED nor NOT_BLESSED"):
        load_verdict(alone[0], str(tmp_path))


def _limits_of_sources(min_documents: int, **limits: float):
    return make_eval_config(
        max_bits_per_byte=8.0, slice_by_source=True, code_hash="", min_documents=min_documents, **limits
    )


def test_a_source_has_a_limit_only_with_enough_documents(tmp_path):
    """alpha needs 1.2503 bits per byte in 2 documents; `12` has one, far below."""
    config = _limits_of_sources(2, max_source_bits_per_byte=1.25)
    verdict = load_verdict(*toys.evaluate(tmp_path / "two", DOCUMENTS, config, NATS))
    assert verdict == Verdict(False, ["source alpha: bits_per_byte 1.2503 is above 1.2500, by 0.0003"])
    config = _limits_of_sources(3, max_source_bits_per_byte=0.01)
    verdict = load_verdict(*toys.evaluate(tmp_path / "three", DOCUMENTS, config, NATS))
    assert verdict == Verdict(
        True,
        [
            "overall: bits_per_byte 1.1870 is at most 8.0000",
            "0 of 3 sources have 3 documents or more: each at most 0.0100 bits per byte",
        ],
    )


def test_a_source_that_became_worse_is_named(tmp_path):
    """Against a baseline of 0.008: alpha 1.0003, so 0.2501 more; sources of one document are let be."""
    config = _limits_of_sources(2, max_source_bits_per_byte_increase=0.25)
    verdict = load_verdict(*toys.evaluate(tmp_path / "worse", DOCUMENTS, config, NATS, baseline_nats=0.008))
    assert verdict == Verdict(
        False,
        [
            "source alpha: bits_per_byte 1.2503 is 0.2501 above the baseline's 1.0003; at most 0.2500 above it is "
            "allowed"
        ],
    )


def test_a_worse_model_accepted_on_purpose_says_so(tmp_path):
    config = make_eval_config(
        max_bits_per_byte=8.0, slice_by_source=False, code_hash="", max_bits_per_byte_increase=0.1, rebaseline=True
    )
    uris = toys.evaluate(tmp_path, DOCUMENTS, config, NATS, baseline_nats=0.008)
    assert load_verdict(*uris) == Verdict(
        True,
        [
            "overall: bits_per_byte 1.1870 is at most 8.0000",
            "accepted on purpose (--rebaseline): bits_per_byte is 0.2374 above the baseline's 0.9496",
        ],
    )
    assert load_results(uris[0]).rebaselined
