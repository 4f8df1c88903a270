"""RegistryPusher, the TFX component."""

from typing import ClassVar

from tfx import types
from tfx.components.pusher.component import Pusher
from tfx.dsl.components.base import executor_spec
from tfx.types import component_spec, standard_artifacts, standard_component_specs

from components.registry_pusher.executor import Executor
from components.sequence_packer.artifact import PackedRows
from foundation.errors import ConfigError
from foundation.source_hash import source_hash

_CODE = ("components/registry_pusher", "components/evaluator", "foundation")
"""The code that decides what is pushed: a change in it must not be served from the cache."""


class RegistryPusherSpec(standard_component_specs.PusherSpec):
    """Channels and properties of RegistryPusher."""

    PARAMETERS: ClassVar = {
        "registry_dir": component_spec.ExecutionParameter(type=str),
        "model_name": component_spec.ExecutionParameter(type=str),
        "keep_versions": component_spec.ExecutionParameter(type=int),
        "code_hash": component_spec.ExecutionParameter(type=str),
        "recipe": component_spec.ExecutionParameter(type=str),
        "mirror": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: ClassVar = {
        "model": component_spec.ChannelParameter(type=standard_artifacts.Model),
        "model_blessing": component_spec.ChannelParameter(type=standard_artifacts.ModelBlessing, optional=True),
        "infra_blessing": component_spec.ChannelParameter(type=standard_artifacts.InfraBlessing, optional=True),
        "evaluation": component_spec.ChannelParameter(type=standard_artifacts.ModelEvaluation, optional=True),
        "rows": component_spec.ChannelParameter(type=PackedRows, optional=True),
        "examples": component_spec.ChannelParameter(type=standard_artifacts.Examples, optional=True),
        "baseline_model": component_spec.ChannelParameter(type=standard_artifacts.Model, optional=True),
    }
    OUTPUTS: ClassVar = {"pushed_model": component_spec.ChannelParameter(type=standard_artifacts.PushedModel)}


class RegistryPusher(Pusher):
    """Pushes a blessed model into the registry (`registry.py`): `registry_dir/model_name/VERSION/`.

    A model that is not blessed is not pushed; one that the newest version holds already is not pushed a
    second time. Each version has a manifest with checksums, metrics, verdict and origin.
    """

    SPEC_CLASS = RegistryPusherSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        model: types.BaseChannel,
        *,
        registry_dir: str,
        model_name: str,
        keep_versions: int,
        code_hash: str | None = None,
        model_blessing: types.BaseChannel | None = None,
        infra_blessing: types.BaseChannel | None = None,
        evaluation: types.BaseChannel | None = None,
        rows: types.BaseChannel | None = None,
        examples: types.BaseChannel | None = None,
        baseline_model: types.BaseChannel | None = None,
        recipe: str = "",
        mirror: str = "",
    ):
        """Makes the component.

        Args:
          model: the exported model.
          registry_dir: root of the registry, a local folder.
          model_name: folder of the model in it, and its name in serving.
          keep_versions: newest versions that stay; the served one and its predecessor always do.
          code_hash: fingerprint of the pusher's code, so that the cache notices an edit; computed if not given.
          model_blessing: the Evaluator's decision. Without one every model is taken for blessed.
          infra_blessing: whether the model can be served, decided elsewhere.
          evaluation: of the Evaluator; its metrics go into the manifest.
          rows: what the model was trained on; its ledger goes into the manifest.
          examples: the documents; their span goes into the manifest.
          baseline_model: of BaselineModel; the manifest says which version it was.
          recipe: fingerprint of everything that decides the model, by which a later run knows that it repeats this one.
          mirror: a place in an object store that holds a copy of every version; empty: none.

        Raises:
          ConfigError: a parameter out of its bounds.
        """
        if keep_versions < 2:
            raise ConfigError(
                f"keep_versions must be at least 2, the served version and its predecessor. "
                f"Received: keep_versions={keep_versions}"
            )
        spec = RegistryPusherSpec(
            model=model,
            model_blessing=model_blessing,
            infra_blessing=infra_blessing,
            evaluation=evaluation,
            rows=rows,
            examples=examples,
            baseline_model=baseline_model,
            recipe=recipe,
            mirror=mirror,
            registry_dir=registry_dir,
            model_name=model_name,
            keep_versions=keep_versions,
            code_hash=code_hash or source_hash(*_CODE),
            pushed_model=types.Channel(type=standard_artifacts.PushedModel),
        )
        # Pusher's own constructor knows only its own specification.
        super(Pusher, self).__init__(spec=spec)
