"""What an evaluation found, and why the model was blessed or not, in plain words."""

import dataclasses
import json
import math
import os
from collections.abc import Iterator

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_specs
from tensorflow_model_analysis.proto import config_pb2, metrics_for_slice_pb2
from tensorflow_model_analysis.writers import eval_config_writer
from tfx.components.evaluator import constants
from tfx.dsl.io import fileio

from components.evaluator.eval_config import LENGTH_RANGES, SLICE_METRIC
from components.evaluator.metrics import Lengths
from foundation.documents import SOURCE
from foundation.errors import ModelError

OVERALL = "overall"
"""How the slice of all documents is called in reasons."""

_COUNTS = ("num_tokens", "num_bytes", "num_documents", "num_not_finite")


@dataclasses.dataclass(frozen=True)
class SliceMetrics:
    """Metrics of one model over the documents of one slice."""

    source: str
    """Empty for the metrics of all documents; for those of a range of lengths, that range in words."""

    perplexity: float
    bits_per_byte: float
    token_accuracy: float
    num_tokens: int
    num_bytes: int
    num_documents: int
    num_not_finite: int
    """Documents whose score is not a finite number; with any, the quotients above are NaN."""


@dataclasses.dataclass(frozen=True)
class EvaluationResults:
    """Metrics of one model: all documents, and by source in the order of their names."""

    overall: SliceMetrics
    by_source: tuple[SliceMetrics, ...]
    baseline: "EvaluationResults | None" = None
    """The same of the model it was compared with."""

    by_length: tuple[SliceMetrics, ...] = ()
    """All documents, by their length in bytes; ranges without documents are left out."""

    rebaselined: bool = False
    """The comparison had no threshold, on purpose."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether the model may be pushed."""

    blessed: bool
    reasons: list[str]
    """One sentence for each threshold: those met if blessed, those missed if not."""


def load_results(evaluation_uri: str) -> EvaluationResults:
    """Metrics that the Evaluator wrote into its `evaluation` artifact.

    Raises:
      ModelError: there is no evaluation, or it covers no document.
    """
    by_model: dict[str, dict[str | None, dict[str, float]]] = {}
    for of_slice in tfma.load_metrics(evaluation_uri):
        source = _source_of(of_slice.slice_key)
        for model_name, values in _values_by_model(of_slice).items():
            by_model.setdefault(model_name, {})[source] = values
    baseline = by_model.pop(tfma.BASELINE_KEY, {})
    # TFMA names the model only where there are two.
    candidate = by_model.get(tfma.CANDIDATE_KEY) or by_model.get("") or {}
    if None not in candidate:
        raise ModelError(
            f"{evaluation_uri}: holds no metrics, since the Evaluator has not run or found no document; give the "
            f"corpus more documents or hold more of them out (corpus.eval_buckets)"
        )
    config, *_ = eval_config_writer.load_eval_run(evaluation_uri)
    return dataclasses.replace(
        _results(candidate),
        baseline=_results(baseline) if baseline else None,
        rebaselined=any(
            json.loads(metric.config or "{}").get("rebaseline", False)
            for spec in config.metrics_specs
            for metric in spec.metrics
        ),
    )


def _results(of_model: dict[str | None, dict[str, float]]) -> EvaluationResults:
    sources = sorted(source for source in of_model if source is not None)
    everything = of_model[None]
    lengths = []
    for least, below in LENGTH_RANGES:
        suffix = Lengths(least, below).suffix
        if everything.get(f"num_documents{suffix}"):
            name = f"{least:,} bytes and more" if below is None else f"{least:,} to {below - 1:,} bytes"
            lengths.append(_slice_metrics(name, everything, suffix))
    return EvaluationResults(
        overall=_slice_metrics("", everything),
        by_source=tuple(_slice_metrics(source, of_model[source]) for source in sources),
        by_length=tuple(lengths),
    )


def load_verdict(evaluation_uri: str, blessing_uri: str) -> Verdict:
    """The Evaluator's decision and its reasons.

    Raises:
      ModelError: there is no evaluation, or the blessing artifact holds no decision.
    """
    blessed = _is_blessed(blessing_uri)
    reasons = _met(evaluation_uri) if blessed else _missed(evaluation_uri)
    # Value and change of a metric that is not a number are missed for one reason.
    return Verdict(blessed, list(dict.fromkeys(reasons)))


def _is_blessed(blessing_uri: str) -> bool:
    for file_name, blessed in (
        (constants.BLESSED_FILE_NAME, True),
        (constants.NOT_BLESSED_FILE_NAME, False),
    ):
        if fileio.exists(os.path.join(blessing_uri, file_name)):
            return blessed
    raise ModelError(
        f"{blessing_uri}: holds neither {constants.BLESSED_FILE_NAME} nor {constants.NOT_BLESSED_FILE_NAME}; "
        f"run the Evaluator again"
    )


def _missed(evaluation_uri: str) -> Iterator[str]:
    """The thresholds that TFMA found not met."""
    validation = tfma.load_validation_result(evaluation_uri)
    if validation.missing_slices:
        yield "no document was evaluated"
        return
    results = load_results(evaluation_uri)
    for of_slice in validation.metric_validations_per_slice:
        source = _source_of(of_slice.slice_key)
        for failure in of_slice.failures:
            threshold = failure.metric_threshold
            kind = threshold.WhichOneof("validate_absolute") or threshold.WhichOneof("validate_relative")
            yield _sentence(
                results,
                source,
                failure.metric_key.name,
                getattr(threshold, kind),
                met=False,
            )


def _met(evaluation_uri: str) -> Iterator[str]:
    """The thresholds that TFMA checked; all were met."""
    results = load_results(evaluation_uri)
    config, *_ = eval_config_writer.load_eval_run(evaluation_uri)
    for key, thresholds in metric_specs.metric_thresholds_from_metrics_specs(config.metrics_specs, config).items():
        for _, threshold in thresholds:
            if key.model_name == tfma.BASELINE_KEY:
                continue
            if key.name == SLICE_METRIC:
                yield from _met_by_sources(results, threshold, _min_documents(config))
            else:
                yield _sentence(results, None, key.name, threshold, met=True)
    if results.rebaselined:
        yield _accepted(results)


def _met_by_sources(
    results: EvaluationResults,
    threshold: config_pb2.GenericValueThreshold | config_pb2.GenericChangeThreshold,
    min_documents: int,
) -> Iterator[str]:
    judged = [part for part in results.by_source if part.num_documents >= min_documents]
    who = f"{len(judged)} of {len(results.by_source)} sources have {min_documents} documents or more"
    if isinstance(threshold, config_pb2.GenericChangeThreshold):
        yield f"{who}: each at most {threshold.absolute.value:.4f} bits per byte above the baseline"
    elif threshold.HasField("upper_bound"):
        yield f"{who}: each at most {threshold.upper_bound.value:.4f} bits per byte"


def _accepted(results: EvaluationResults) -> str:
    if results.baseline is None:
        return "accepted on purpose (--rebaseline), though there is no baseline"
    value, before = results.overall.bits_per_byte, results.baseline.overall.bits_per_byte
    if not math.isfinite(before):
        return "accepted on purpose (--rebaseline): the baseline's bits_per_byte is not a number"
    change = f"{abs(value - before):.4f} {'above' if value > before else 'below'}"
    return f"accepted on purpose (--rebaseline): bits_per_byte is {change} the baseline's {before:.4f}"


def _min_documents(config: config_pb2.EvalConfig) -> int:
    settings = [json.loads(metric.config or "{}") for spec in config.metrics_specs for metric in spec.metrics]
    return next((int(each["min_documents"]) for each in settings if "min_documents" in each), 0)


def _sentence(
    results: EvaluationResults,
    source: str | None,
    metric: str,
    threshold: config_pb2.GenericValueThreshold | config_pb2.GenericChangeThreshold,
    met: bool,
) -> str:
    """Which threshold, on which slice, the value against the bound."""
    measured = _slice_of(results, source)
    metric = "bits_per_byte" if metric == SLICE_METRIC else metric
    value = getattr(measured, metric)
    where = OVERALL if source is None else f"{SOURCE} {source}"
    if not math.isfinite(value):
        return f"{where}: {metric} is not a number: {_why_not_finite(measured)}"
    start = f"{where}: {metric} {value:.4f}"
    if isinstance(threshold, config_pb2.GenericChangeThreshold):
        allowed = threshold.absolute.value
        if results.baseline is None:
            raise ModelError(f"{start} is compared with a baseline, but the evaluation holds none; run it again")
        before = getattr(_slice_of(results.baseline, source), metric)
        if not math.isfinite(before):
            return f"{start} has nothing to be compared with: the baseline's {metric} is not a number"
        change = f"{abs(value - before):.4f} {'above' if value > before else 'below'} the baseline's {before:.4f}"
        return f"{start} is {change}; at most {allowed:.4f} above it is allowed"
    lowest, highest = threshold.lower_bound.value, threshold.upper_bound.value
    if met:
        return f"{start} is at most {highest:.4f}"
    if value < lowest:
        return f"{start} is below {lowest:.4f}, which no model can reach: the signature `score` is wrong"
    return f"{start} is above {highest:.4f}, by {value - highest:.4f}"


def _why_not_finite(measured: SliceMetrics) -> str:
    if measured.num_not_finite:
        return f"the scores of {measured.num_not_finite} of {measured.num_documents} documents are not finite"
    return f"documents {measured.num_documents}, tokens {measured.num_tokens}, bytes {measured.num_bytes}"


def _slice_of(results: EvaluationResults, source: str | None) -> SliceMetrics:
    if source is None:
        return results.overall
    return next(each for each in results.by_source if each.source == source)


def _source_of(key: metrics_for_slice_pb2.SliceKey) -> str | None:
    """Value of the slice `source`, which may be empty; None for the slice of all documents."""
    for single in key.single_slice_keys:
        if single.column == SOURCE:
            return single.bytes_value.decode(errors="replace")
    return None


def _values_by_model(
    of_slice: metrics_for_slice_pb2.MetricsForSlice,
) -> dict[str, dict[str, float]]:
    """Metrics by name, by model; differences between models left out."""
    values: dict[str, dict[str, float]] = {}
    for item in of_slice.metric_keys_and_values:
        if not item.key.is_diff:
            values.setdefault(item.key.model_name, {})[item.key.name] = item.value.double_value.value
    return values


def _slice_metrics(source: str, values: dict[str, float], suffix: str = "") -> SliceMetrics:
    counts = {name: int(values[name + suffix]) for name in _COUNTS}
    return SliceMetrics(
        source=source,
        perplexity=values[f"perplexity{suffix}"],
        bits_per_byte=values[f"bits_per_byte{suffix}"],
        token_accuracy=values[f"token_accuracy{suffix}"],
        **counts,
    )
