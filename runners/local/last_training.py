"""What the last training of a run was given, as ML Metadata has it."""

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
    missing = PipelineError(
        f"{config.root}: nothing was trained yet in this run; run: tokenmill run --config FILE --to {_TRAINER}"
    )
    if not config.metadata_path.exists():
        raise missing
    connection = metadata_store_pb2.ConnectionConfig()
    connection.sqlite.filename_uri = str(config.metadata_path)
    connection.sqlite.connection_mode = metadata_store_pb2.SqliteMetadataSourceConfig.READONLY
    store = MetadataStore(connection)
    context = store.get_context_by_type_and_name("node", f"{config.name}.{_TRAINER}")
    executions = store.get_executions_by_context(context.id) if context else []
    for execution in sorted(executions, key=lambda candidate: candidate.id, reverse=True):
        inputs = _inputs(store, execution.id)
        if {"rows", "transform_graph"} <= inputs.keys():
            return LastTraining(
                rows=Path(inputs["rows"]),
                tokenizer=tokenizer_path(inputs["transform_graph"]),
                train_config=json.loads(execution.custom_properties["train_config"].string_value),
            )
    raise missing


def _inputs(store: MetadataStore, execution_id: int) -> dict[str, str]:
    """URI by key."""
    events = store.get_events_by_execution_ids([execution_id])
    keys = {
        event.artifact_id: event.path.steps[0].key for event in events if event.type == metadata_store_pb2.Event.INPUT
    }
    return {keys[artifact.id]: artifact.uri for artifact in store.get_artifacts_by_id(list(keys))}
