"""EvaluationReport, the TFX component."""

from typing import Any, ClassVar

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from components.evaluation_report import artifact
from components.evaluation_report.executor import Executor
from foundation.source_hash import source_hash

_CODE = ("components/evaluation_report", "components/evaluator/results.py", "foundation")
"""The code that decides what is on the page: a change in it must not be served from the cache."""


class EvaluationReportSpec(component_spec.ComponentSpec):
    """Channels and properties of EvaluationReport."""

    PARAMETERS: ClassVar[dict[str, Any]] = {
        "title": component_spec.ExecutionParameter(type=str),
        "code_hash": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: ClassVar[dict[str, Any]] = {
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "model_run": component_spec.ChannelParameter(type=standard_artifacts.ModelRun),
        "evaluation": component_spec.ChannelParameter(type=standard_artifacts.ModelEvaluation),
        "blessing": component_spec.ChannelParameter(type=standard_artifacts.ModelBlessing),
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
    }
    OUTPUTS: ClassVar[dict[str, Any]] = {
        "report": component_spec.ChannelParameter(type=artifact.EvaluationReport),
    }


class EvaluationReport(base_component.BaseComponent):
    """Writes the page of an evaluation, whatever its verdict."""

    SPEC_CLASS = EvaluationReportSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        *,
        model: types.BaseChannel,
        model_run: types.BaseChannel,
        evaluation: types.BaseChannel,
        blessing: types.BaseChannel,
        examples: types.BaseChannel,
        title: str,
    ):
        """Makes the component.

        Args:
          model: the exported model, which writes the samples.
          model_run: of the trainer; its log has the loss curve.
          evaluation, blessing: of the Evaluator.
          examples: the documents; the samples go on from the beginnings of some that were held out.
          title: the model's name.
        """
        super().__init__(
            EvaluationReportSpec(
                model=model,
                model_run=model_run,
                evaluation=evaluation,
                blessing=blessing,
                examples=examples,
                title=title,
                code_hash=source_hash(*_CODE),
                report=types.Channel(type=artifact.EvaluationReport),
            )
        )
