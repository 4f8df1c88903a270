"""What the Evaluator measures, over which slices, and what it takes to be blessed."""

import json
from typing import Any

# TFMA itself no longer re-exports these messages under its root.
from tensorflow_model_analysis.proto import config_pb2

from foundation.documents import SOURCE

SCORE_SIGNATURE = "score"
"""Signature of the exported model that is evaluated. Its one input is named like the documents' feature `text`,
so TFMA feeds it the raw texts."""

GATED_METRIC = "BitsPerByte"
"""The metric with thresholds: the one that stays comparable when the tokenizer changes."""

SLICE_METRIC = "slice_bits_per_byte"
"""The same once more, for the thresholds of slices: 0, so never refused, in a slice of too few documents. TFMA applies
a threshold to every slice that there is, be it of one document."""

LENGTH_RANGES = ((0, 1 << 10), (1 << 10, 1 << 14), (1 << 14, 1 << 18), (1 << 18, None))
"""By which lengths in bytes documents are measured apart: below 1 KiB, 16 KiB, 256 KiB, and beyond."""

_METRICS_MODULE = "components.evaluator.metrics"
_METRIC_CLASSES = (
    GATED_METRIC,
    "Perplexity",
    "TokenAccuracy",
    "TokenCount",
    "ByteCount",
    "DocumentCount",
    "NotFiniteCount",
)


def make_eval_config(
    *,
    max_bits_per_byte: float,
    slice_by_source: bool,
    code_hash: str,
    max_bits_per_byte_increase: float | None = None,
    max_source_bits_per_byte: float | None = None,
    max_source_bits_per_byte_increase: float | None = None,
    min_documents: int = 1,
    rebaseline: bool = False,
) -> config_pb2.EvalConfig:
    """Configuration of the Evaluator, the same with and without a baseline.

    One nameless model is configured; where the Evaluator's input `baseline_model` holds a model, TFX adds
    it under the same settings, and where it is empty, TFX drops the change threshold.

    Batches need no setting: Beam sizes them so that one takes about a second to score, at most a thousand
    documents, and the signature runs a few windows at a time whatever it is given.

    Args:
      max_bits_per_byte: the model is blessed if its bits per byte over all documents are at most this.
      slice_by_source: measure each `source` beside the whole.
      code_hash: of the code that computes the metrics, so that the cache notices an edit.
      max_bits_per_byte_increase: and if they exceed the baseline's by at most this. None: not compared.
      max_source_bits_per_byte, max_source_bits_per_byte_increase: the same for each source. None: no threshold.
      min_documents: sources with fewer held-out documents have no thresholds.
      rebaseline: the model is accepted however it compares with the baseline; the evaluation says so.
    """
    if rebaseline:
        max_bits_per_byte_increase = max_source_bits_per_byte_increase = None
    overall = config_pb2.SlicingSpec()
    by_source = config_pb2.SlicingSpec(feature_keys=[SOURCE])
    metrics = []
    for class_name in _METRIC_CLASSES:
        gated = class_name == GATED_METRIC
        settings: dict[str, Any] = {"code_hash": code_hash} | ({"rebaseline": True} if gated and rebaseline else {})
        # A plain `threshold` would hold for every slice.
        threshold = _threshold(max_bits_per_byte, max_bits_per_byte_increase) if gated else None
        metrics.append(_metric(class_name, settings, overall, threshold))
        for least, below in LENGTH_RANGES:
            metrics.append(_metric(class_name, {"code_hash": code_hash, "least": least, "below": below}))
    of_sources = _threshold(max_source_bits_per_byte, max_source_bits_per_byte_increase)
    if slice_by_source and of_sources is not None:
        settings = {"code_hash": code_hash, "name": SLICE_METRIC, "min_documents": min_documents}
        metrics.append(_metric(GATED_METRIC, settings, by_source, of_sources))
    return config_pb2.EvalConfig(
        model_specs=[config_pb2.ModelSpec(signature_name=SCORE_SIGNATURE)],
        slicing_specs=[overall, by_source] if slice_by_source else [overall],
        metrics_specs=[config_pb2.MetricsSpec(metrics=metrics)],
        # TFMA's own example count says what `num_documents` says; with it on, a Keras model's metrics would run, too.
        options=config_pb2.Options(include_default_metrics={"value": False}),
    )


def _threshold(most: float | None, increase: float | None) -> config_pb2.MetricThreshold | None:
    """At most `most`, and at most `increase` above the baseline; None if neither is asked for."""
    if most is None and increase is None:
        return None
    # The lower bound refuses what no model can reach, so a broken score.
    value = config_pb2.GenericValueThreshold(lower_bound={"value": 0.0})
    if most is not None:
        value.upper_bound.value = most
    threshold = config_pb2.MetricThreshold(value_threshold=value)
    if increase is not None:
        threshold.change_threshold.CopyFrom(
            config_pb2.GenericChangeThreshold(
                direction=config_pb2.MetricDirection.LOWER_IS_BETTER, absolute={"value": increase}
            )
        )
    return threshold


def _metric(
    class_name: str,
    settings: dict[str, Any],
    slicing: config_pb2.SlicingSpec | None = None,
    threshold: config_pb2.MetricThreshold | None = None,
) -> config_pb2.MetricConfig:
    thresholds = []
    if threshold is not None:
        thresholds.append(config_pb2.PerSliceMetricThreshold(slicing_specs=[slicing], threshold=threshold))
    return config_pb2.MetricConfig(
        module=_METRICS_MODULE,
        class_name=class_name,
        config=json.dumps(settings),
        per_slice_thresholds=thresholds,
    )
