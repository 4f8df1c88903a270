"""Why a component had to run: what differs from the last time that it succeeded.

TFX's cache knows only that its key, a hash of everything, is new. Here the parts are compared.
"""

import json
from collections.abc import Mapping
from typing import Any

from ml_metadata import MetadataStore
from ml_metadata.proto import metadata_store_pb2
from tfx.orchestration.portable import data_types

from pipeline.setting_names import setting_of

_SUCCESSFUL = (metadata_store_pb2.Execution.COMPLETE, metadata_store_pb2.Execution.CACHED)
_CORPUS_FINGERPRINT = "input_fingerprint"
"""Property in which ExampleGen's driver notes file sizes and times of the corpus."""

_FOLLOWS_FROM_CORPUS = ("input_config", "span", "version")
"""Properties that the driver resolves along with it."""


def reason_to_run(store: MetadataStore, pipeline_name: str, component: str, info: data_types.ExecutionInfo) -> str:
    """One line for a person.

    Args:
      store: an open store.
      info: what TFX prepared: inputs, outputs without content, properties.
    """
    context = store.get_context_by_type_and_name("node", f"{pipeline_name}.{component}")
    executions = store.get_executions_by_context(context.id) if context else []
    earlier = [execution for execution in executions if execution.id != info.execution_id]
    successes = [execution for execution in earlier if execution.last_known_state in _SUCCESSFUL]
    if not successes:
        return "last attempt failed" if earlier else "first run"
    last = max(successes, key=lambda execution: execution.id)
    events = store.get_events_by_execution_ids([last.id])
    changes = _changed_inputs(events, info) + _changed_properties(_maker(store, last, events), info)
    if changes:
        return ", ".join(changes)
    latest = max(earlier, key=lambda execution: execution.id)
    if latest.last_known_state not in _SUCCESSFUL:
        return "last attempt failed"
    return "earlier outputs are gone, or how it is executed changed"


def _maker(
    store: MetadataStore, execution: metadata_store_pb2.Execution, events: list[metadata_store_pb2.Event]
) -> metadata_store_pb2.Execution:
    """The execution that made the outputs: itself, or the one from which the cache took them.

    Only that one has the properties that a driver resolved; a cached execution keeps them as they were configured.
    """
    outputs = [event.artifact_id for event in events if event.type == metadata_store_pb2.Event.OUTPUT]
    if execution.last_known_state != metadata_store_pb2.Execution.CACHED or not outputs:
        return execution
    producers = {
        event.execution_id
        for event in store.get_events_by_artifact_ids(outputs)
        if event.type == metadata_store_pb2.Event.OUTPUT
    }
    made = [
        candidate
        for candidate in store.get_executions_by_id(sorted(producers))
        if candidate.last_known_state == metadata_store_pb2.Execution.COMPLETE
    ]
    return max(made, key=lambda candidate: candidate.id, default=execution)


def _changed_inputs(events: list[metadata_store_pb2.Event], info: data_types.ExecutionInfo) -> list[str]:
    before: dict[str, set[int]] = {}
    for event in events:
        if event.type == metadata_store_pb2.Event.INPUT:
            before.setdefault(event.path.steps[0].key, set()).add(event.artifact_id)
    now = {key: {artifact.id for artifact in artifacts} for key, artifacts in info.input_dict.items()}
    return [
        f"new {key.replace('_', ' ')}" for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)
    ]


def _changed_properties(made: metadata_store_pb2.Execution, info: data_types.ExecutionInfo) -> list[str]:
    before = {key: _plain(value) for key, value in made.custom_properties.items() if not key.startswith("__")}
    now = {key: value for key, value in info.exec_properties.items() if value is not None}
    if before.get(_CORPUS_FINGERPRINT) != now.get(_CORPUS_FINGERPRINT):
        for key in (_CORPUS_FINGERPRINT, *_FOLLOWS_FROM_CORPUS):
            before.pop(key, None)
            now.pop(key, None)
        return ["the corpus changed", *_differences(before, now)]
    return _differences(before, now)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    changes: list[str] = []
    for key in sorted(before.keys() | now.keys()):
        if str(before.get(key)) != str(now.get(key)):
            changes += _changed_within(key, before.get(key), now.get(key))
    return sorted(set(changes), key=changes.index)


def _changed_within(key: str, before: Any, now: Any) -> list[str]:
    """Names of what differs below `key`: JSON objects are opened, so that one says `train.steps`."""
    parsed_before, parsed_now = _parse(before), _parse(now)
    if key.endswith("code_hash"):
        return ["its code changed"]
    if isinstance(parsed_before, Mapping) and isinstance(parsed_now, Mapping):
        changes = []
        for inner in sorted(parsed_before.keys() | parsed_now.keys()):
            if parsed_before.get(inner) != parsed_now.get(inner):
                changes += _changed_within(f"{key}.{inner}", parsed_before.get(inner), parsed_now.get(inner))
        return changes
    if isinstance(parsed_before, list) and isinstance(parsed_now, list) and len(parsed_before) == len(parsed_now):
        changes = []
        for item_before, item_now in zip(parsed_before, parsed_now, strict=True):
            if item_before != item_now:
                changes += _changed_within(key, item_before, item_now)
        return changes
    return [f"{setting_of(key)} changed"]


def _parse(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _plain(value: metadata_store_pb2.Value) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None
