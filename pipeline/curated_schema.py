"""ImportSchemaGen that notices when the schema's file is edited: TFX's knows the file by its path alone."""

import hashlib
from pathlib import Path
from typing import Any, ClassVar

from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.dsl.components.base import base_component
from tfx.types import channel, component_spec, standard_artifacts, standard_component_specs


class CuratedSchemaSpec(component_spec.ComponentSpec):
    """ImportSchemaGen's, with the content's hash."""

    PARAMETERS: ClassVar[dict[str, Any]] = {
        **standard_component_specs.ImportSchemaGenSpec.PARAMETERS,
        "schema_sha256": component_spec.ExecutionParameter(type=str),
    }
    INPUTS: ClassVar[dict[str, Any]] = standard_component_specs.ImportSchemaGenSpec.INPUTS
    OUTPUTS: ClassVar[dict[str, Any]] = standard_component_specs.ImportSchemaGenSpec.OUTPUTS


class CuratedSchema(base_component.BaseComponent):
    """Brings the curated schema into the graph."""

    SPEC_CLASS = CuratedSchemaSpec
    EXECUTOR_SPEC = ImportSchemaGen.EXECUTOR_SPEC

    def __init__(self, schema_file: Path):
        """Takes the path of the schema as text."""
        super().__init__(
            CuratedSchemaSpec(
                schema_file=str(schema_file),
                schema_sha256=hashlib.sha256(schema_file.read_bytes()).hexdigest(),
                schema=channel.Channel(type=standard_artifacts.Schema),
            )
        )
