"""The component: a fresh process, a report, and a blessing that is withheld from what is not the trained model."""

import json

import pytest
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import encode_split_names

from components.export_validator import executor
from components.export_validator.cases import Settings, make_cases
from components.export_validator.executor import Executor
from components.export_validator.report import MEANINGS, as_html
from components.sequence_packer.artifact import PackedRows
from foundation.errors import CorpusError, ModelError
from foundation.events import EVENTS_VARIABLE

PROPERTIES = {"num_documents": 3, "tolerance": 1e-3, "max_answer_s": 60.0, "timeout_s": 300.0, "title": "toy <b>"}


def validate(world, model, folder):
    """Runs the component; blessing, report, and the note that it told."""
    inputs = {}
    for name, kind, place in (
        ("model", standard_artifacts.Model, model),
        ("model_run", standard_artifacts.ModelRun, world.folder / "run"),
        ("examples", standard_artifacts.Examples, world.folder / "examples"),
        ("rows", PackedRows, world.folder / "rows"),
    ):
        inputs[name] = [kind()]
        inputs[name][0].uri = str(place)
    inputs["examples"][0].split_names = encode_split_names(["eval"])
    blessing = standard_artifacts.InfraBlessing()
    blessing.uri = str(folder / "blessing")
    Executor().Do(inputs, {"blessing": [blessing]}, {**PROPERTIES, "report_dir": str(folder / "latest")})
    report = json.loads((folder / "blessing" / "report.json").read_text())
    assert json.loads((folder / "latest" / "report.json").read_text()) == report
    return blessing, report


@pytest.fixture
def notes(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv(EVENTS_VARIABLE, str(path))
    return lambda: [json.loads(line)["text"] for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_the_trained_model_is_blessed(world, tmp_path, notes):
    blessing, report = validate(world, world.model, tmp_path)
    assert [check["name"] for check in report["checks"] if check["passed"]] == list(MEANINGS)
    assert blessing.get_int_custom_property("blessed") == 1
    assert (tmp_path / "blessing" / "INFRA_BLESSED").exists()
    assert report["memory_mib"] > 0 and set(report["seconds"]) == {
        *("load", "serving_default", "prefill", "decode", "score", "logits", "tokenize", "detokenize")
    }
    assert notes() == [f"the export passes 10 checks: {tmp_path / 'latest' / 'report.html'}"]


@pytest.mark.slow
def test_other_weights_than_the_trainers_are_not_blessed(world, tmp_path, notes):
    """A model that is sound in every other way."""
    values = dict(world.params)
    values["blocks/1/down"] *= 1.05
    blessing, report = validate(world, world.export("other", values), tmp_path)
    assert [check["name"] for check in report["checks"] if not check["passed"]] == ["trainer"]
    assert blessing.get_int_custom_property("blessed") == 0
    assert (tmp_path / "blessing" / "INFRA_NOT_BLESSED").exists()
    assert not (tmp_path / "blessing" / "INFRA_BLESSED").exists()
    (failed,) = (check for check in report["checks"] if not check["passed"])
    assert set(failed["example"]) == {"row", "place", "expected", "found"}
    assert notes()[0].startswith(
        "the export is not valid and will not be pushed: trainer: -log p differs from the trainer's by"
    )
    page = (tmp_path / "latest" / "report.html").read_text()
    assert "toy &lt;b&gt;" in page and 'class="failed"' in page and "&quot;place&quot;" in page


def cases_of(world, rows="rows", hidden=()):
    return make_cases(
        world.model / "Format-Serving",
        world.folder / "run" / "reference.npz",
        world.folder / "examples" / "Split-eval",
        world.folder / rows / "Split-eval",
        list(hidden),
        Settings(1, 1e-3, 60.0, None),
    )


def test_the_process_cannot_import_what_is_hidden(world):
    """By hiding what it cannot do without."""
    with pytest.raises(ModelError, match="tensorflow_text is the trainer's code, which a served model must not need"):
        executor.validate(cases_of(world, hidden=["tensorflow_text"]), timeout_s=100)


def test_a_process_that_is_not_done_in_time_is_ended(world):
    with pytest.raises(ModelError, match=r"not done after 0.1 s; raise export.timeout_s"):
        executor.validate(cases_of(world), timeout_s=0.1)


def test_the_packages_of_the_project_are_those_to_hide():
    names = executor.project_packages()
    assert {"components", "foundation", "ingest", "pipeline", "runners", "trainer_module"} <= set(names)


def test_documents_that_are_in_no_row_are_nothing_to_compare_with(world, monkeypatch):
    monkeypatch.setattr("components.export_validator.cases.rows_of_document", lambda rows, doc_id: [])
    with pytest.raises(CorpusError, match="none of its documents is in the rows"):
        cases_of(world)


def test_cases_hold_whole_documents_as_the_rows_have_them(world):
    documents = {document["doc_id"]: document for document in cases_of(world)["documents"]}
    (document,) = documents.values()
    ids = [token for stretch in document["stretches"] for token in stretch["token_ids"]]
    assert ids[0] == 2 and ids[-1] == 3 and len(ids) == document["num_tokens"]


def test_a_report_is_taken_for_hostile_text():
    check = {"name": "tokens", "passed": False, "found": "<script>", "example": {"doc_id": "<img>"}, "seconds": 0.1}
    page = as_html("t", {"passed": False, "checks": [check], "memory_mib": None, "seconds": {"load": None}})
    assert "<script>" not in page and "<img>" not in page
