"""CorpusGate, the TFX component."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from tfx import types
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from components.corpus_gate.artifact import GateReport
from components.corpus_gate.executor import Executor
from foundation.source_hash import source_hash

_CODE = ("components/corpus_gate", "components/sequence_packer/reading.py", "foundation")


class CorpusGateSpec(types.ComponentSpec):
    """Inputs, outputs and parameters of CorpusGate."""

    PARAMETERS: ClassVar[dict[str, Any]] = {
        "rules": component_spec.ExecutionParameter(type=str),
        "max_document_bytes": component_spec.ExecutionParameter(type=int),
        "serving_statistics": component_spec.ExecutionParameter(type=str, optional=True),
        "history_dir": component_spec.ExecutionParameter(type=str),
        "title": component_spec.ExecutionParameter(type=str),
        "code_hash": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: ClassVar[dict[str, Any]] = {
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
        "statistics": component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics),
        "anomalies": component_spec.ChannelParameter(type=standard_artifacts.ExampleAnomalies),
        "schema": component_spec.ChannelParameter(type=standard_artifacts.Schema),
    }
    OUTPUTS: ClassVar[dict[str, Any]] = {"report": component_spec.ChannelParameter(type=GateReport)}


class CorpusGate(base_beam_component.BaseBeamComponent):
    """Stops a run whose documents are bad, before anything is learned from them.

    ExampleValidator notes anomalies and goes on; this component reads them, counts in the documents what
    statistics do not show (`rules.RULES`), and fails the run if a blocking rule is broken. What only warns is
    shown. Statistics of every span that passes are kept in `history_dir`, so that the next can be compared.
    """

    SPEC_CLASS = CorpusGateSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        examples: types.BaseChannel,
        statistics: types.BaseChannel,
        anomalies: types.BaseChannel,
        schema: types.BaseChannel,
        *,
        rules: Mapping[str, Mapping[str, Any]],
        max_document_bytes: int,
        serving_statistics: Path | None,
        history_dir: Path,
        title: str,
        code_hash: str | None = None,
    ):
        """
        Args:
          examples: CorpusGen's.
          statistics: StatisticsGen's, of the same examples.
          anomalies: ExampleValidator's.
          schema: the curated one, with the comparators for drift and skew.
          rules: by name, `threshold` and `severity` (block, warn, off).
          max_document_bytes: longer documents break the rule `overlong`.
          serving_statistics: a `FeatureStats.pb` to compare by the schema's skew comparators.
          history_dir: folder of the statistics that passed, and of the latest report.
          title: of the report's page.
          code_hash: fingerprint of the gate's code; computed if not given.
        """
        super().__init__(
            CorpusGateSpec(
                examples=examples,
                statistics=statistics,
                anomalies=anomalies,
                schema=schema,
                rules=json.dumps(rules, sort_keys=True),
                max_document_bytes=max_document_bytes,
                serving_statistics=None if serving_statistics is None else str(serving_statistics),
                history_dir=str(history_dir),
                title=title,
                code_hash=code_hash or source_hash(*_CODE),
                report=types.Channel(type=GateReport),
            )
        )
