"""ExportValidator, the TFX component."""

from typing import ClassVar

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from components.export_validator.executor import Executor
from components.sequence_packer.artifact import PackedRows
from foundation.source_hash import source_hash

_CODE = (
    "components/export_validator",
    "components/sequence_packer/lookup.py",
    "components/sequence_packer/reading.py",
    "foundation",
)


class ExportValidatorSpec(types.ComponentSpec):
    """Inputs, outputs and parameters of ExportValidator."""

    PARAMETERS: ClassVar = {
        "num_documents": component_spec.ExecutionParameter(type=int),
        "tolerance": component_spec.ExecutionParameter(type=float),
        "max_answer_s": component_spec.ExecutionParameter(type=float),
        "max_load_mib": component_spec.ExecutionParameter(type=float, optional=True),
        "timeout_s": component_spec.ExecutionParameter(type=float),
        "report_dir": component_spec.ExecutionParameter(type=str),
        "title": component_spec.ExecutionParameter(type=str),
        "code_hash": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: ClassVar = {
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "model_run": component_spec.ChannelParameter(type=standard_artifacts.ModelRun),
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples),
        "rows": component_spec.ChannelParameter(type=PackedRows),
    }
    OUTPUTS: ClassVar = {"blessing": component_spec.ChannelParameter(type=standard_artifacts.InfraBlessing)}


class ExportValidator(base_component.BaseComponent):
    """Proves that the exported model is the one that was trained, before it may be pushed.

    A fresh process, which cannot import this project, loads the SavedModel and asks its signatures about
    evaluation documents (`checks.py` has one method for each check): ids are those of the trainer's rows, text
    comes back byte for byte, -log p is what the trainer's own forward pass says (`trainer_module.reference`),
    scores add up over windows, the cache changes nothing, nor a batch, nor streaming, and every signature answers in
    time. `report.json` and `report.html` say what was found, with the first example of what failed. The blessing is
    TFX's: a model without it is not pushed.
    """

    SPEC_CLASS = ExportValidatorSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        model: types.BaseChannel,
        model_run: types.BaseChannel,
        examples: types.BaseChannel,
        rows: types.BaseChannel,
        *,
        num_documents: int,
        tolerance: float,
        max_answer_s: float,
        max_load_mib: float | None,
        timeout_s: float,
        report_dir: str,
        title: str,
        code_hash: str | None = None,
    ):
        """Makes the component.

        Args:
          model, model_run: DistributedTrainer's: the SavedModel, and what its own forward pass says of some rows.
          examples: CorpusGen's, with the split `eval`.
          rows: SequencePacker's, of the same documents.
          num_documents: how many documents the checks look at.
          tolerance: by how much logits and -log p may differ, nats.
          max_answer_s: within which each signature answers a small request.
          max_load_mib: what loading the model may take of memory; None: only told.
          timeout_s: for the whole.
          report_dir: folder in which the latest report lies.
          title: of the report's page.
          code_hash: fingerprint of the component's code; computed if not given.
        """
        super().__init__(
            ExportValidatorSpec(
                model=model,
                model_run=model_run,
                examples=examples,
                rows=rows,
                num_documents=num_documents,
                tolerance=tolerance,
                max_answer_s=max_answer_s,
                max_load_mib=max_load_mib,
                timeout_s=timeout_s,
                report_dir=report_dir,
                title=title,
                code_hash=code_hash or source_hash(*_CODE),
                blessing=types.Channel(type=standard_artifacts.InfraBlessing),
            )
        )
