"""The metrics by themselves: exact sums, whatever the batches."""

import functools
import math
import operator
import random

import apache_beam as beam
import pytest
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_types
from tfx_bsl.tfxio import tf_example_record

from components.evaluator import eval_config, metrics
from components.evaluator.metrics import DocumentSums
from components.evaluator.results import load_results
from foundation.errors import ModelError
from tests.components.evaluator import toys


def test_sums_do_not_depend_on_the_order():
    """Floats added in another order differ in the last digits; these sums are equal, bit for bit."""
    rng = random.Random(7)
    scores = [rng.expovariate(1e-3) for _ in range(1000)] + [1e-9, 3e7]
    shuffled = rng.sample(scores, len(scores))
    # What is to be avoided does happen with these numbers. Not with sum(): from Python 3.12 on it compensates.
    assert functools.reduce(operator.add, scores) != functools.reduce(operator.add, shuffled)
    forward, backward = _add(scores), _add(shuffled)
    assert forward == backward
    assert forward.nll == pytest.approx(math.fsum(scores), rel=1e-15)


@pytest.mark.parametrize("nll", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_spoils_every_quotient(nll):
    sums = _add([1.0, nll, 2.0])
    assert (sums.num_documents, sums.num_not_finite) == (3, 1)
    assert all(math.isnan(value) for value in (sums.bits_per_byte, sums.perplexity, sums.token_accuracy))


def test_nothing_gives_no_number():
    empty = DocumentSums()
    assert all(math.isnan(value) for value in (empty.bits_per_byte, empty.perplexity, empty.token_accuracy))


def test_perplexity_beyond_a_float_is_infinite():
    assert DocumentSums.of_document(1e6, 1, 1, 0).perplexity == math.inf


def test_metrics_are_registered_under_names_of_their_own():
    """TFMA looks a class up by its bare name, so a name must not belong to one of TFMA's."""
    registered = metric_types.registered_metrics()
    for metric in metrics.METRICS:
        assert registered[metric.__name__] is metric
    configured = list(dict.fromkeys(each.class_name for each in _config().metrics_specs[0].metrics))
    assert configured == [metric.__name__ for metric in metrics.METRICS]


def test_code_hash_is_part_of_the_configuration():
    """An edit of the metrics changes the configuration, by which TFX's cache decides."""
    assert _config("a") != _config("b")
    assert all("0123" in each.config for each in _config().metrics_specs[0].metrics)


def test_an_output_that_the_signature_lacks_is_named():
    with pytest.raises(ModelError, match="gives no `num_bytes`"):
        list(metrics._SumsOfDocument("").process({"predictions": {"nll": [1.0], "num_tokens": [1]}}))


def test_results_do_not_depend_on_the_batch_size(tmp_path):
    documents = [(f"d{i}", "x" * (13 * i % 97), f"s{i % 3}") for i in range(23)]
    toys.save_examples(tmp_path / "examples", documents)
    model = toys.save_model(tmp_path / "model", nats=0.0137)
    results = []
    for batch_size in (3, 23):
        output = str(tmp_path / f"by-{batch_size}")
        source = tf_example_record.TFExampleRecord(
            str(toys.examples_file(tmp_path / "examples")),
            raw_record_column_name=tfma.ARROW_INPUT_COLUMN,
        )
        shared = tfma.default_eval_shared_model(f"{model.uri}/Format-Serving", eval_config=_config())
        with beam.Pipeline("DirectRunner") as pipeline:
            _ = (
                pipeline
                | source.BeamSource(batch_size=batch_size)
                | tfma.ExtractEvaluateAndWriteResults(
                    eval_shared_model=shared, eval_config=_config(), output_path=output
                )
            )
        results.append(load_results(output))
    assert results[0] == results[1]
    assert results[0].overall.num_documents == 23


def _add(scores: list[float]) -> DocumentSums:
    total = DocumentSums()
    for nll in scores:
        total = total.plus(DocumentSums.of_document(nll, num_tokens=2, num_bytes=3, num_correct=1))
    return total


def _config(code_hash: str = "0123"):
    return eval_config.make_eval_config(max_bits_per_byte=8.0, slice_by_source=True, code_hash=code_hash)
