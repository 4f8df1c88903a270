"""What TensorFlow Data Validation says: anomalies, drift against the last accepted span, skew against serving."""

import re
from pathlib import Path

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

from foundation import atomic
from foundation.errors import ConfigError

_ACCEPTED = re.compile(r"span-(\d+)\.pb")


def schema_anomalies(anomalies_of_splits: dict[str, Path]) -> list[str]:
    """One line for each anomaly in ExampleValidator's output.

    Args:
      anomalies_of_splits: file `SchemaDiff.pb` by split.
    """
    lines = []
    for split, path in sorted(anomalies_of_splits.items()):
        anomalies = anomalies_pb2.Anomalies.FromString(path.read_bytes())
        if anomalies.dataset_anomaly_info.reason:
            lines.append(f"{split}: {anomalies.dataset_anomaly_info.description}")
        for feature in sorted(anomalies.anomaly_info):
            lines.append(f"{split}, {feature}: {anomalies.anomaly_info[feature].description}")
    return lines


def differences(statistics: Path, schema: Path, previous: Path | None = None, serving: Path | None = None) -> list[str]:
    """One line for each feature that differs beyond the schema's comparators from what is given.

    Args:
      statistics: of the training split, as StatisticsGen writes them.
      schema: a text protocol buffer.
      previous: statistics to compare by `drift_comparator`; or
      serving: by `skew_comparator`.

    Raises:
      ConfigError: `serving` cannot be read.
    """
    if previous is None and serving is None:
        return []
    # Only what is compared is of interest here: everything else is ExampleValidator's.
    comparators = _comparators_only(tfdv.load_schema_text(str(schema)))
    anomalies = tfdv.validate_statistics(
        _load(statistics),
        comparators,
        previous_statistics=None if previous is None else _load(previous),
        serving_statistics=None if serving is None else _load(serving),
    )
    kinds = (
        anomalies_pb2.AnomalyInfo.COMPARATOR_L_INFTY_HIGH,
        anomalies_pb2.AnomalyInfo.COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH,
    )
    return [
        f"{feature}: {reason.description}"
        for feature, info in sorted(anomalies.anomaly_info.items())
        for reason in info.reason
        if reason.type in kinds
    ]


def last_accepted(history: Path, span: int) -> Path | None:
    """Statistics of the newest span before `span` that the gate let pass."""
    if not history.is_dir():
        return None
    spans = {int(match[1]): path for path in history.iterdir() if (match := _ACCEPTED.fullmatch(path.name))}
    earlier = [number for number in spans if number < span]
    return spans[max(earlier)] if earlier else None


def accept(history: Path, span: int, statistics: Path) -> None:
    """Keeps the statistics of a span that passed."""
    history.mkdir(parents=True, exist_ok=True)
    atomic.write_bytes(history / f"span-{span}.pb", statistics.read_bytes())


def _load(path: Path) -> statistics_pb2.DatasetFeatureStatisticsList:
    try:
        return tfdv.load_stats_binary(str(path))
    except Exception as error:
        raise ConfigError(
            f"{path}: no statistics of TensorFlow Data Validation ({error}); give a FeatureStats.pb as "
            "gate.serving_statistics, or null"
        ) from error


def _comparators_only(schema: schema_pb2.Schema) -> schema_pb2.Schema:
    for feature in schema.feature:
        feature.ClearField("presence")
        feature.ClearField("shape")
        feature.ClearField("value_count")
    return schema
