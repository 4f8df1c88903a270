"""Runs a pipeline with TFX's local orchestration, one component at a time, telling what happens."""

import datetime
from pathlib import Path
from typing import Any

from ml_metadata import MetadataStore
from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.compiler import constants
from tfx.orchestration import metadata
from tfx.orchestration import pipeline as pipeline_module
from tfx.orchestration.local import runner_utils
from tfx.orchestration.local.local_dag_runner import LocalDagRunner
from tfx.orchestration.portable import partial_run_utils, runtime_parameter_utils
from tfx.proto.orchestration import pipeline_pb2
from tfx.types import artifact_utils, standard_artifacts

from components.registry_pusher import registry
from foundation.errors import PipelineError
from foundation.events import emit
from runners.local.launcher import Outputs, WatchedLauncher

_PUSHED_DESTINATION = "pushed_destination"


class LocalRunner(LocalDagRunner):
    """LocalDagRunner with events; remembers the outputs of every component."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs: dict[str, Outputs] = {}
        """By component id; of cached ones, too."""

    def run_with_ir(self, pipeline: pipeline_pb2.Pipeline, run_options: pipeline_pb2.RunOptions | None = None) -> None:
        """Runs the nodes of `pipeline`, which are in topological order.

        Args:
          run_options: a partial run, as TFX takes it.

        Raises:
          Exception: that of the first component that failed; later ones are not started.
        """
        run_id = datetime.datetime.now().isoformat()
        runtime_parameter_utils.substitute_runtime_parameter(
            pipeline, {constants.PIPELINE_RUN_ID_PARAMETER_NAME: run_id}
        )
        deployment = runner_utils.extract_local_deployment_config(pipeline)
        connection = _connection_of(deployment)
        if run_options:
            partial = run_options.partial_run
            partial_run_utils.mark_pipeline(
                pipeline,
                from_nodes=partial.from_nodes or None,
                to_nodes=partial.to_nodes or None,
                snapshot_settings=partial.snapshot_settings,
            )
        with metadata.Metadata(connection) as handle:
            retire_lost_pushes(handle.store)
        nodes = [node.pipeline_node for node in pipeline.nodes]
        emit(
            "run_started",
            pipeline=pipeline.pipeline_info.id,
            run_id=run_id,
            components=[node.node_info.id for node in nodes],
        )
        for node in nodes:
            component = node.node_info.id
            if node.execution_options.HasField("skip"):
                emit("component_skipped", component=component)
                continue
            if node.execution_options.run.perform_snapshot:
                with metadata.Metadata(connection) as handle:
                    _reuse_earlier_outputs(handle, pipeline, component)
            launcher = WatchedLauncher(
                pipeline_node=node,
                mlmd_connection=metadata.Metadata(connection),
                pipeline_info=pipeline.pipeline_info,
                pipeline_runtime_spec=pipeline.runtime_spec,
                executor_spec=runner_utils.extract_executor_spec(deployment, component),
                custom_driver_spec=runner_utils.extract_custom_driver_spec(deployment, component),
            )
            info = launcher.launch()
            if info is not None and info.execution_id is not None:
                with metadata.Metadata(connection) as handle:
                    self.outputs[component] = outputs_of_execution(handle.store, info.execution_id)


def run_pipeline(
    pipeline: pipeline_module.Pipeline, from_nodes: list[str] | None = None, to_nodes: list[str] | None = None
) -> dict[str, Outputs]:
    """Runs a pipeline, or the part of it between some nodes.

    Returns:
      The outputs of every component that ran or was found in the cache.
    """
    runner = LocalRunner()
    options = None
    if from_nodes or to_nodes:
        options = pipeline_module.RunOptions(from_nodes=from_nodes, to_nodes=to_nodes)
    runner.run(pipeline, run_options=options)
    return runner.outputs


def _reuse_earlier_outputs(handle: metadata.Metadata, pipeline: pipeline_pb2.Pipeline, component: str) -> None:
    """Takes the outputs of skipped components from the last run.

    Raises:
      PipelineError: there was none.
    """
    try:
        partial_run_utils.snapshot(handle, pipeline)
    except LookupError as error:
        raise PipelineError(
            f"{component}: there is no earlier run whose outputs it could start from; run the pipeline from its start, "
            f"without --from ({error})"
        ) from error


def outputs_of_execution(store: MetadataStore, execution_id: int) -> Outputs:
    """Output artifacts by key, as ML Metadata has them: those of a cached execution are an earlier one's."""
    events = store.get_events_by_execution_ids([execution_id])
    keys = {
        event.artifact_id: event.path.steps[0].key for event in events if event.type == metadata_store_pb2.Event.OUTPUT
    }
    artifacts = store.get_artifacts_by_id(list(keys))
    types = {found.id: found for found in store.get_artifact_types_by_id([made.type_id for made in artifacts])}
    outputs: Outputs = {}
    for made in artifacts:
        artifact = artifact_utils.deserialize_artifact(types[made.type_id], made)
        outputs.setdefault(keys[made.id], []).append(artifact)
    return outputs


def retire_lost_pushes(store: MetadataStore) -> None:
    """Marks pushes that are no longer what is served as deleted, so that the cache does not claim them.

    TFX's cache makes sure that a cached artifact's own folder exists; a pushed model lives elsewhere. There its
    version may have been removed, or another have been pushed over it: then pushing again is no repetition.
    """
    type_name = standard_artifacts.PushedModel.TYPE_NAME
    if not any(artifact_type.name == type_name for artifact_type in store.get_artifact_types()):
        return
    lost = []
    for artifact in store.get_artifacts_by_type(type_name):
        destination = artifact.custom_properties[_PUSHED_DESTINATION].string_value
        live = artifact.state == metadata_store_pb2.Artifact.LIVE
        if live and destination and not _is_served(destination):
            artifact.state = metadata_store_pb2.Artifact.DELETED
            lost.append(artifact)
    if lost:
        store.put_artifacts(lost)


def _is_served(destination: str) -> bool:
    """Whether a version's folder is there and the newest of its model."""
    folder = Path(destination)
    newest = registry.newest_version(folder.parent.parent, folder.parent.name)
    return folder.exists() and folder.name == str(newest)


def _connection_of(deployment: Any) -> Any:
    config = deployment.metadata_connection_config
    return getattr(config, config.WhichOneof("connection_config"))
