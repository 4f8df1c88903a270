"""What CorpusGate does when it runs."""

import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import apache_beam as beam
from tfx import types
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils

from components.corpus_gate import report, statistics
from components.corpus_gate.counting import CountDocuments, Facts
from components.corpus_gate.rules import Judged, judge
from components.sequence_packer.reading import example_files
from foundation import atomic, events
from foundation.errors import CorpusError

_COMPONENT = "CorpusGate"
_TRAIN = "train"


class Executor(base_beam_executor.BaseBeamExecutor):
    """Counts, judges, reports, and blocks."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """See `CorpusGate` for inputs, outputs and parameters.

        Raises:
          CorpusError: a blocking rule is broken, or a file of documents is damaged.
          ConfigError: the serving statistics cannot be read.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        examples = artifact_utils.get_single_instance(input_dict["examples"])
        settings = json.loads(exec_properties["rules"])
        facts = self._count(examples, int(exec_properties["max_document_bytes"]))
        history, span = Path(exec_properties["history_dir"]), _span(examples)
        train_statistics = _file(input_dict["statistics"], _TRAIN, "FeatureStats.pb")
        findings = _findings(input_dict, train_statistics, statistics.last_accepted(history, span), exec_properties)
        judged = judge(facts, findings, settings)

        made = artifact_utils.get_single_instance(output_dict["report"])
        pages = {
            "report.json": report.as_json(span, facts, judged),
            "report.html": report.as_html(exec_properties["title"], span, facts, judged),
        }
        # What a component that fails has made is thrown away: so the page lies here, too.
        latest = history / "latest"
        for folder in (Path(made.uri), latest):
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in pages.items():
                atomic.write_text(folder / name, text)
        _conclude(made, facts, judged, latest / "report.html")
        statistics.accept(history, span, train_statistics)

    def _count(self, examples: types.Artifact, max_document_bytes: int) -> Facts:
        files = [
            (split, path)
            for split in artifact_utils.decode_split_names(examples.split_names)
            for path in example_files(artifact_utils.get_split_uri([examples], split))
        ]
        # Workers may be other processes: what they have counted comes back by way of a file.
        with tempfile.TemporaryDirectory(prefix="corpus-gate-") as folder:
            path = Path(folder) / "facts.pickle"
            with self._make_beam_pipeline() as pipeline:
                _ = pipeline | beam.Create(files) | CountDocuments(max_document_bytes) | beam.Map(_keep, str(path))
            facts: Facts = pickle.loads(path.read_bytes())  # written by this run alone
        return facts


def _keep(facts: Facts, path: str) -> None:
    Path(path).write_bytes(pickle.dumps(facts))


def _findings(
    input_dict: dict[str, list[types.Artifact]],
    train_statistics: Path,
    previous: Path | None,
    exec_properties: dict[str, Any],
) -> dict[str, list[str]]:
    """What TensorFlow Data Validation says, by rule."""
    anomalies = artifact_utils.get_single_instance(input_dict["anomalies"])
    of_splits = {
        split: _file([anomalies], split, "SchemaDiff.pb")
        for split in artifact_utils.decode_split_names(anomalies.split_names)
    }
    (schema,) = Path(artifact_utils.get_single_uri(input_dict["schema"])).glob("*.pbtxt")
    serving = exec_properties.get("serving_statistics")
    return {
        "schema_anomalies": statistics.schema_anomalies(of_splits),
        "drift": statistics.differences(train_statistics, schema, previous=previous),
        "skew": statistics.differences(train_statistics, schema, serving=Path(serving)) if serving else [],
    }


def _conclude(made: types.Artifact, facts: Facts, judged: list[Judged], page: Path) -> None:
    """Tells warnings; raises if anything blocks."""
    broken = [rule for rule in judged if not rule.passed]
    blocking = [rule.in_words() for rule in broken if rule.severity == "block"]
    if blocking:
        raise CorpusError(
            "the corpus must not be trained on:\n"
            + "\n".join(blocking)
            + f"\nmend the documents, or change gate.NAME.threshold or gate.NAME.severity; the whole report: {page}"
        )
    for rule in broken:
        events.emit("note", component=_COMPONENT, text=f"warning: {rule.in_words()}")
    documents = sum(split.num_documents for split in facts.splits.values())
    warned = f", {len(broken)} of them with a warning: {page}" if broken else ""
    events.emit("note", component=_COMPONENT, text=f"{documents:,} documents pass {len(judged)} rules{warned}")
    made.set_int_custom_property("passed", 1)
    made.set_int_custom_property("num_documents", documents)
    made.set_int_custom_property("warnings", len(broken))


def _span(examples: types.Artifact) -> int:
    """Number of the span, as ExampleGen's driver keeps it."""
    return int(examples.get_custom_property("span") or 0)


def _file(artifacts: list[types.Artifact], split: str, name: str) -> Path:
    return Path(artifact_utils.get_split_uri(artifacts, split)) / name
