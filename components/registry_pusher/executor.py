"""Executor of RegistryPusher: a blessed model becomes a version of the registry."""

import shutil
from pathlib import Path
from typing import Any

from tfx import types
from tfx.components.pusher import executor as tfx_pusher
from tfx.types import artifact_utils, standard_component_specs

from components.registry_pusher import registry, retention
from foundation import events
from foundation.links import link_tree

OUTCOME_KEY = "outcome"
"""Custom property of the pushed model, beside those of TFX's Pusher: one of the following."""

PUSHED = "pushed"
ALREADY_SERVED = "already_served"
NOT_BLESSED = "not_blessed"
WITHDRAWN = "withdrawn"
"""A rollback took this very model back."""

_COMPONENT = "RegistryPusher"


class Executor(tfx_pusher.Executor):
    """Pushes into the registry, where TFX's own pushes into one folder by the clock."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Pushes the model if it is blessed and not served already; then removes versions too old to keep.

        The artifact `pushed_model` gets TFX's properties `pushed`, `pushed_destination` and `pushed_version`,
        the property `outcome`, and in its folder the model, as TFX's consumers expect it, with the manifest.

        Raises:
          ModelError, HostError: as `registry.push`; HostError as `mirror.mirror`, the model being pushed by then.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        pushed_model = artifact_utils.get_single_instance(output_dict[standard_component_specs.PUSHED_MODEL_KEY])
        model_name = exec_properties["model_name"]
        if not self.CheckBlessing(input_dict):
            self._MarkNotPushed(pushed_model)
            self._conclude(pushed_model, NOT_BLESSED, f"{model_name} is not blessed and was not pushed")
            return
        # Imported here: reading evaluations takes TFMA, for which whoever only makes the graph has no use.
        from components.registry_pusher.record import facts_of

        model_path = self.GetModelPath(input_dict)
        registry_dir = exec_properties["registry_dir"]
        facts = facts_of(model_path, input_dict, exec_properties["code_hash"], exec_properties.get("recipe", ""))
        try:
            push = registry.push(registry_dir, model_name, model_path, facts)
        except registry.WithdrawnError as error:
            self._MarkNotPushed(pushed_model)
            self._conclude(pushed_model, WITHDRAWN, str(error))
            return
        _archive(Path(model_path), push.folder / registry.MANIFEST_NAME, Path(pushed_model.uri))
        self._MarkPushed(pushed_model, pushed_destination=str(push.folder), pushed_version=str(push.version))
        if push.is_new:
            self._conclude(pushed_model, PUSHED, f"{model_name} version {push.version} pushed to {push.folder}")
        else:
            self._conclude(
                pushed_model, ALREADY_SERVED, f"{model_name} is unchanged: version {push.version} holds it already"
            )
        try:
            removed = retention.remove_old(registry_dir, model_name, exec_properties["keep_versions"])
        except OSError as error:  # the model is served: what is too old can wait for the next push
            events.emit("note", component=_COMPONENT, text=f"old versions could not be removed: {error}")
            removed = []
        if exec_properties.get("mirror"):
            from components.registry_pusher.mirror import mirror

            mirror(registry_dir, model_name, exec_properties["mirror"])
        if removed:
            events.emit(
                "note",
                component=_COMPONENT,
                text=f"{model_name}: old versions removed: {', '.join(map(str, removed))}",
            )

    def _conclude(self, pushed_model: types.Artifact, outcome: str, text: str) -> None:
        pushed_model.set_string_custom_property(OUTCOME_KEY, outcome)
        events.emit("note", component=_COMPONENT, text=text)


def _archive(model: Path, manifest: Path, target: Path) -> None:
    """Makes `target` hold the model, as TFX's Pusher leaves it, without a second copy of its bytes.

    The files are links to the trainer's, which nothing changes once they are written: so the artifact stays
    whole when retention removes the version, costs nothing, and shares no file with what is served. Where
    links are not possible (another file system), they are copies.
    """
    link_tree(model, target)
    shutil.copyfile(manifest, target / manifest.name)
