"""Two components that cost nothing: a source of a number, and one that doubles it."""

import json
import os
from pathlib import Path
from typing import Any, ClassVar

from tfx.dsl.components.base import base_component, base_executor, executor_spec
from tfx.types import Artifact, channel, component_spec, standard_artifacts

from foundation.errors import CorpusError


class SourceExecutor(base_executor.BaseExecutor):
    def Do(self, input_dict: dict, output_dict: dict[str, list[Artifact]], exec_properties: dict[str, Any]) -> None:
        number = json.loads(exec_properties["settings"])["number"]
        if number < 0:
            raise CorpusError(f"number {number} is negative; give another")
        Path(output_dict["examples"][0].uri, "number").write_text(str(number))


class DoubleExecutor(base_executor.BaseExecutor):
    def Do(
        self,
        input_dict: dict[str, list[Artifact]],
        output_dict: dict[str, list[Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        number = int(Path(input_dict["examples"][0].uri, "number").read_text())
        Path(output_dict["statistics"][0].uri, "number").write_text(str(2 * number))


class SourceSpec(component_spec.ComponentSpec):
    PARAMETERS: ClassVar = {
        "settings": component_spec.ExecutionParameter(type=str),
        "code_hash": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: ClassVar = {}
    OUTPUTS: ClassVar = {"examples": component_spec.ChannelParameter(type=standard_artifacts.Examples)}


class DoubleSpec(component_spec.ComponentSpec):
    PARAMETERS: ClassVar = {}
    INPUTS: ClassVar = {"examples": component_spec.ChannelParameter(type=standard_artifacts.Examples)}
    OUTPUTS: ClassVar = {"statistics": component_spec.ChannelParameter(type=standard_artifacts.ExampleStatistics)}


class Source(base_component.BaseComponent):
    SPEC_CLASS = SourceSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(SourceExecutor)

    def __init__(self, settings: dict, code_hash: str):
        examples = channel.Channel(type=standard_artifacts.Examples)
        super().__init__(SourceSpec(settings=json.dumps(settings), code_hash=code_hash, examples=examples))


class Double(base_component.BaseComponent):
    SPEC_CLASS = DoubleSpec
    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(DoubleExecutor)

    def __init__(self, examples: channel.BaseChannel):
        statistics = channel.Channel(type=standard_artifacts.ExampleStatistics)
        super().__init__(DoubleSpec(examples=examples, statistics=statistics))


def toy_pipeline(folder: os.PathLike[str], number: int = 1, code_hash: str = "a"):
    """Source -> Double, with everything under `folder`."""
    from tfx.orchestration import metadata
    from tfx.orchestration.pipeline import Pipeline

    source = Source({"number": number, "other": 0}, code_hash)
    return Pipeline(
        pipeline_name="toy",
        pipeline_root=os.path.join(folder, "artifacts"),
        components=[source, Double(source.outputs["examples"])],
        enable_cache=True,
        metadata_connection_config=metadata.sqlite_metadata_connection_config(os.path.join(folder, "metadata.sqlite")),
    )
