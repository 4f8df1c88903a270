"""DistributedTrainer: TFX's Trainer, fed with packed rows.

Its executor makes a job of its artifacts and gives it to a launcher; every process that the launcher starts
calls the same `trainer_module.run.run_fn`, with the arguments of TFX's trainer contract that it needs.
"""

import json
from typing import ClassVar

from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import channel, component_spec, standard_artifacts

from components.distributed_trainer.executor import Executor
from components.sequence_packer.artifact import PackedRows
from foundation.source_hash import source_hash
from trainer_module.config import DistributionConfig, ModelConfig, TrainConfig

_CODE = ("components/distributed_trainer", "trainer_module", "foundation")
"""The code that decides the model: a change in it must not be served from the cache."""


def code_hash() -> str:
    """Fingerprint of that code."""
    return source_hash(*_CODE)


class DistributedTrainerSpec(component_spec.ComponentSpec):
    """Channels and properties of DistributedTrainer."""

    PARAMETERS: ClassVar = {
        "model_config": component_spec.ExecutionParameter(type=str),
        "train_config": component_spec.ExecutionParameter(type=str),
        "distribution_config": component_spec.ExecutionParameter(type=str),
        "checkpoint_root": component_spec.ExecutionParameter(type=str),
        "code_hash": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: ClassVar = {
        "rows": component_spec.ChannelParameter(type=PackedRows),
        "transform_graph": component_spec.ChannelParameter(type=standard_artifacts.TransformGraph),
        "baseline_model": component_spec.ChannelParameter(type=standard_artifacts.Model, optional=True),
    }
    OUTPUTS: ClassVar = {
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "model_run": component_spec.ChannelParameter(type=standard_artifacts.ModelRun),
    }


class DistributedTrainer(base_component.BaseComponent):
    """Pretrains a decoder-only language model on packed rows."""

    SPEC_CLASS = DistributedTrainerSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        rows: channel.BaseChannel,
        transform_graph: channel.BaseChannel,
        model_config: ModelConfig,
        train_config: TrainConfig,
        distribution_config: DistributionConfig,
        checkpoint_root: str,
        baseline_model: channel.BaseChannel | None = None,
    ):
        """Makes the component.

        Args:
          rows: SequencePacker's rows, with the splits `train` and `eval`.
          transform_graph: Transform's graph, whose assets hold the tokenizer.
          model_config, train_config, distribution_config: sections of the configuration; kept as JSON in the
            execution's properties.
          checkpoint_root: folder in which trainings keep checkpoints across runs.
          baseline_model: of BaselineModel, with whose weights training begins; it may hold none.
        """
        super().__init__(
            DistributedTrainerSpec(
                rows=rows,
                transform_graph=transform_graph,
                baseline_model=baseline_model,
                model_config=json.dumps(model_config.model_dump(), sort_keys=True),
                train_config=json.dumps(train_config.model_dump(), sort_keys=True),
                distribution_config=json.dumps(distribution_config.model_dump(), sort_keys=True),
                checkpoint_root=checkpoint_root,
                code_hash=code_hash(),
                model=channel.Channel(type=standard_artifacts.Model),
                model_run=channel.Channel(type=standard_artifacts.ModelRun),
            )
        )
