"""Executor of BaselineModel: a version of the registry becomes an artifact."""

from pathlib import Path
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import path_utils

from components.baseline_model.choice import NONE, choose
from components.registry_pusher import registry
from foundation import events
from foundation.errors import ModelError
from foundation.links import link_tree

VERSION_KEY = "registry_version"
DIGEST_KEY = "model_digest"
FOLDER_KEY = "registry_folder"
MADE_BY_KEY = "model_artifact_id"
"""Custom properties of the artifact: version, digest and folder in the registry; id of the trainer's artifact, from
which it was pushed, in the ML Metadata of the run that pushed it."""

_COMPONENT = "BaselineModel"


class Executor(base_executor.BaseExecutor):
    """Takes a version of the registry."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Fills the artifact `model`, or takes it out of the output where there is no baseline.

        Raises:
          ModelError: the version is gone, or its files do not match its manifest.
        """
        registry_dir, name = exec_properties["registry_dir"], exec_properties["model_name"]
        chosen = exec_properties["baseline"] or choose(registry_dir, name, recipe="")
        if chosen == NONE:
            output_dict["model"].clear()
            events.emit("note", component=_COMPONENT, text="no baseline: the model is judged by its own values alone")
            return
        number, _, digest = chosen.partition(":")
        version = int(number)
        manifest = registry.read_manifest(registry_dir, name, version)
        faults = registry.verify(registry_dir, name, version)
        if not faults and digest and registry.digest_of(manifest["files"]) != digest:
            faults = ["it has been replaced since this run began"]
        if faults:
            raise ModelError(
                f"{registry_dir}/{name}/{version}: cannot be the baseline: {'; '.join(faults[:3])}. Serve another: "
                "tokenmill registry rollback"
            )
        folder = registry.version_folder(registry_dir, name, version)
        model = artifact_utils.get_single_instance(output_dict["model"])
        link_tree(folder, Path(path_utils.serving_model_dir(model.uri)), without=registry.MANIFEST_NAME)
        model.set_int_custom_property(VERSION_KEY, version)
        model.set_string_custom_property(DIGEST_KEY, registry.digest_of(manifest["files"]))
        model.set_string_custom_property(FOLDER_KEY, str(folder))
        made_by = ((manifest.get("lineage") or {}).get("model") or {}).get("id")
        if isinstance(made_by, int):
            model.set_int_custom_property(MADE_BY_KEY, made_by)
        events.emit("note", component=_COMPONENT, text=f"the baseline is version {version}, {folder}")
