"""BaselineModel, the TFX component."""

from typing import Any, ClassVar

from tfx import types
from tfx.dsl.components.base import base_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from components.baseline_model.executor import Executor
from foundation.source_hash import source_hash

_CODE = ("components/baseline_model", "components/registry_pusher/registry.py", "foundation")
"""The code that decides what is taken: a change in it must not be served from the cache."""


class BaselineModelSpec(component_spec.ComponentSpec):
    """Channels and properties of BaselineModel."""

    PARAMETERS: ClassVar = {
        "registry_dir": component_spec.ExecutionParameter(type=str),
        "model_name": component_spec.ExecutionParameter(type=str),
        "baseline": component_spec.ExecutionParameter(type=str),
        "code_hash": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: ClassVar[dict[str, Any]] = {}
    OUTPUTS: ClassVar = {"model": component_spec.ChannelParameter(type=standard_artifacts.Model)}


class BaselineModel(base_component.BaseComponent):
    """Takes the registry's served model as an artifact; its output holds none if there is none.

    A version whose files do not match its manifest is refused.
    """

    SPEC_CLASS = BaselineModelSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(self, *, registry_dir: str, model_name: str, baseline: str = ""):
        """Makes the component.

        Args:
          registry_dir: root of the registry.
          model_name: folder of the model in it.
          baseline: what `choice.choose` gave when the graph was made, by which the cache knows whether anything has
            changed. Empty: it is decided when the component runs, for a graph that is compiled on another machine;
            then a cache must be off, or it never sees a later model.
        """
        super().__init__(
            BaselineModelSpec(
                registry_dir=registry_dir,
                model_name=model_name,
                baseline=baseline,
                code_hash=source_hash(*_CODE),
                model=types.Channel(type=standard_artifacts.Model),
            )
        )
