"""What a run made last, and what its last training was given, as ML Metadata has it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from ml_metadata import MetadataStore
from ml_metadata.proto import metadata_store_pb2

from foundation.errors import PipelineError
from foundation.transform_graph import tokenizer_path
from pipeline.config import RunConfig

_TRAINER = "DistributedTrainer"


@dataclasses.dataclass(frozen=True)
class LastTraining:
    """Inputs and settings of a training that was at least begun."""

    rows: Path
    """Folder of the packed rows, with one folder for each split."""

    tokenizer: Path
    """File of the SentencePiece model."""

    train_config: dict[str, Any]
    """The section `train`."""

    def split_folder(self, split: str) -> Path:
        """The rows of one split.

        Raises:
          PipelineError: there is no such split.
        """
        folder = self.rows / f"Split-{split}"
        if not folder.is_dir():
            known = sorted(path.name.removeprefix("Split-") for path in self.rows.glob("Split-*"))
            raise PipelineError(f"{self.rows}: no split {split!r}; known: {', '.join(known) or 'none'}")
        return folder


def find_last_training(config: RunConfig) -> LastTraining:
    """The newest execution of DistributedTrainer that had inputs, finished or not.

    Raises:
      PipelineError: the run has none.
    """
    store = _open(config)
    for execution in _executions(store, config, _TRAINER):
        inputs = _artifacts(store, execution.id, metadata_store_pb2.Event.INPUT)
        if {"rows", "transform_graph"} <= inputs.keys():
            return LastTraining(
                rows=Path(inputs["rows"]),
                tokenizer=tokenizer_path(inputs["transform_graph"]),
                train_config=json.loads(execution.custom_properties["train_config"].string_value),
            )
    raise _missing(config, _TRAINER)


def find_last_output(config: RunConfig, component: str, key: str) -> Path:
    """Folder of what a component made last.

    Raises:
      PipelineError: it has made nothing yet, or it is gone.
    """
    store = _open(config)
    for execution in _executions(store, config, component):
        if execution.last_known_state in (metadata_store_pb2.Execution.COMPLETE, metadata_store_pb2.Execution.CACHED):
            outputs = _artifacts(store, execution.id, metadata_store_pb2.Event.OUTPUT)
            if key in outputs and Path(outputs[key]).is_dir():
                return Path(outputs[key])
    raise _missing(config, component)


def _open(config: RunConfig) -> MetadataStore:
    if not config.metadata_path.exists():
        raise PipelineError(f"{config.root}: nothing has run yet; run: tokenmill run --config FILE")
    connection = metadata_store_pb2.ConnectionConfig()
    connection.sqlite.filename_uri = str(config.metadata_path)
    connection.sqlite.connection_mode = metadata_store_pb2.SqliteMetadataSourceConfig.READONLY
    return MetadataStore(connection)


def _executions(store: MetadataStore, config: RunConfig, component: str) -> list[metadata_store_pb2.Execution]:
    """Of a component, the newest first."""
    context = store.get_context_by_type_and_name("node", f"{config.name}.{component}")
    executions = store.get_executions_by_context(context.id) if context else []
    return sorted(executions, key=lambda candidate: candidate.id, reverse=True)


def _missing(config: RunConfig, component: str) -> PipelineError:
    return PipelineError(
        f"{config.root}: {component} has not run yet; run: tokenmill run --config FILE --to {component}"
    )


def _artifacts(store: MetadataStore, execution_id: int, kind: int) -> dict[str, str]:
    """URI by key, of inputs or outputs."""
    events = store.get_events_by_execution_ids([execution_id])
    keys = {event.artifact_id: event.path.steps[0].key for event in events if event.type == kind}
    return {keys[artifact.id]: artifact.uri for artifact in store.get_artifacts_by_id(list(keys))}
