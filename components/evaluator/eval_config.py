"""What the Evaluator measures, over which slices, and what it takes to be blessed."""

import json

# TFMA itself no longer re-exports these messages under its root.
from tensorflow_model_analysis.proto import config_pb2

from foundation.documents import SOURCE

SCORE_SIGNATURE = "score"
"""Signature of the exported model that is evaluated. Its one input is named like the documents' feature `text`,
so TFMA feeds it the raw texts."""

GATED_METRIC = "BitsPerByte"
"""The metric with thresholds: the one that stays comparable when the tokenizer changes."""

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
) -> config_pb2.EvalConfig:
    """Configuration of the Evaluator, the same with and without a baseline.

    One nameless model is configured; where the Evaluator's input `baseline_model` holds a model, TFX adds
    it under the same settings, and where it is empty, TFX drops the change threshold.

    Batches need no setting: Beam sizes them so that one takes about a second to score, at most a thousand
    documents, and the signature runs a few windows at a time whatever it is given.

    Args:
      max_bits_per_byte: the model is blessed if its bits per byte over all documents are at most this.
      slice_by_source: measure each `source` beside the whole. Slices have no thresholds.
      code_hash: of the code that computes the metrics, so that the cache notices an edit.
      max_bits_per_byte_increase: and if they exceed the baseline's by at most this. None: not compared.
    """
    # The lower bound refuses what no model can reach, so a broken score.
    threshold = config_pb2.MetricThreshold(
        value_threshold=config_pb2.GenericValueThreshold(
            lower_bound={"value": 0.0}, upper_bound={"value": max_bits_per_byte}
        )
    )
    if max_bits_per_byte_increase is not None:
        threshold.change_threshold.CopyFrom(
            config_pb2.GenericChangeThreshold(
                direction=config_pb2.MetricDirection.LOWER_IS_BETTER,
                absolute={"value": max_bits_per_byte_increase},
            )
        )
    overall = config_pb2.SlicingSpec()
    return config_pb2.EvalConfig(
        model_specs=[config_pb2.ModelSpec(signature_name=SCORE_SIGNATURE)],
        slicing_specs=[overall, config_pb2.SlicingSpec(feature_keys=[SOURCE])] if slice_by_source else [overall],
        metrics_specs=[
            config_pb2.MetricsSpec(
                metrics=[
                    config_pb2.MetricConfig(
                        module=_METRICS_MODULE,
                        class_name=class_name,
                        config=json.dumps({"code_hash": code_hash}),
                        # A plain `threshold` would hold for every slice, be it of one document.
                        per_slice_thresholds=[
                            config_pb2.PerSliceMetricThreshold(slicing_specs=[overall], threshold=threshold)
                        ]
                        if class_name == GATED_METRIC
                        else [],
                    )
                    for class_name in _METRIC_CLASSES
                ]
            )
        ],
        # TFMA's own example count says what `num_documents` says; with it on, a Keras model's metrics would run, too.
        options=config_pb2.Options(include_default_metrics={"value": False}),
    )
