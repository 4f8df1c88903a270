"""The pusher: what goes into the registry, what does not, and what the artifact and the manifest say of it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tfx.types import standard_artifacts
from tfx.types.artifact import Artifact
from tfx.types.channel import Channel

from components.evaluator.eval_config import make_eval_config
from components.registry_pusher import registry, rollback
from components.registry_pusher.component import RegistryPusher
from components.registry_pusher.executor import Executor
from components.sequence_packer.artifact import PackedRows
from foundation.errors import ConfigError
from foundation.events import EVENTS_VARIABLE
from tests.components.evaluator import toys
from tests.components.registry_pusher.exports import save_export

WEIGHTS = "variables/variables.data-00000-of-00001"


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """The texts of the events so far."""
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv(EVENTS_VARIABLE, str(path))
    return lambda: [json.loads(line)["text"] for line in path.read_text().splitlines()]


def test_a_blessed_model_becomes_a_version(tmp_path, notes):
    pushed = _push(tmp_path, b"weights", blessed=1)
    folder = tmp_path / "registry" / "toy" / "1"
    assert _properties(pushed) == (1, "pushed", str(folder), "1")
    assert registry.verify(tmp_path / "registry", "toy", 1) == []
    assert notes() == [f"toy version 1 pushed to {folder}"]


def test_the_artifact_holds_the_model_without_a_second_copy(tmp_path):
    """Whole, as consumers of TFX's Pusher expect it: links to the trainer's files, none to what is served."""
    archive = Path(_push(tmp_path, b"weights", blessed=1).uri)
    served = tmp_path / "registry" / "toy" / "1"
    assert (archive / WEIGHTS).read_bytes() == (served / WEIGHTS).read_bytes() == b"weights"
    assert (archive / "manifest.json").read_bytes() == (served / "manifest.json").read_bytes()
    assert (archive / WEIGHTS).samefile(tmp_path / "model" / "Format-Serving" / WEIGHTS)
    assert not (archive / WEIGHTS).samefile(served / WEIGHTS)


def test_a_model_that_is_not_blessed_stays_out(tmp_path, notes):
    pushed = _push(tmp_path, b"weights", blessed=0)
    assert pushed.get_int_custom_property("pushed") == 0
    assert pushed.get_string_custom_property("outcome") == "not_blessed"
    assert not (tmp_path / "registry").exists()
    assert not os.path.exists(pushed.uri)
    assert notes() == ["toy is not blessed and was not pushed"]


@pytest.mark.parametrize(("valid", "outcome"), [(0, "not_blessed"), (1, "pushed")])
def test_an_export_that_is_not_proven_stays_out(tmp_path, valid, outcome):
    """Blessed by the Evaluator is not enough."""
    proof = _artifact(standard_artifacts.InfraBlessing, str(tmp_path / "proof"), 14)
    proof.set_int_custom_property("blessed", valid)
    pushed = _push(tmp_path, b"weights", blessed=1, inputs={"infra_blessing": [proof]})
    assert pushed.get_string_custom_property("outcome") == outcome
    assert (tmp_path / "registry").exists() == bool(valid)


def test_an_unchanged_model_is_recorded_as_already_served(tmp_path, notes):
    _push(tmp_path / "first", b"weights", blessed=1, registry_dir=tmp_path / "registry")
    again = _push(tmp_path / "second", b"weights", blessed=1, registry_dir=tmp_path / "registry")
    assert _properties(again) == (1, "already_served", str(tmp_path / "registry" / "toy" / "1"), "1")
    assert registry.list_versions(tmp_path / "registry", "toy") == [1]
    assert notes()[-1] == "toy is unchanged: version 1 holds it already"


def test_a_model_that_was_rolled_back_is_not_pushed_again(tmp_path, notes):
    for i in range(2):
        _push(tmp_path / str(i), f"weights {i}".encode(), registry_dir=tmp_path / "registry")
    rollback.rollback(tmp_path / "registry", "toy")
    again = _push(tmp_path / "again", b"weights 1", registry_dir=tmp_path / "registry")
    assert again.get_int_custom_property("pushed") == 0
    assert again.get_string_custom_property("outcome") == "withdrawn"
    assert registry.list_versions(tmp_path / "registry", "toy") == [1, 2, 3]
    assert "the same model as version 2, which was rolled back" in notes()[-1]


def test_the_manifest_says_which_data_and_which_baseline(tmp_path):
    """Span and ledger of the documents, the version it was compared with, the recipe."""
    rows = _artifact(PackedRows, str(tmp_path / "rows"), 15)
    (tmp_path / "rows" / "Split-train").mkdir(parents=True)
    packing = {"num_rows": 7, "ledger": {"documents_in": 3}}
    (tmp_path / "rows" / "Split-train" / "packing.json").write_text(json.dumps(packing))
    examples = _artifact(standard_artifacts.Examples, str(tmp_path / "examples"), 16)
    examples.set_int_custom_property("span", 4)
    baseline = _artifact(standard_artifacts.Model, str(tmp_path / "baseline"), 17)
    baseline.set_int_custom_property("registry_version", 6)
    baseline.set_string_custom_property("model_digest", "ab")
    _push(tmp_path, b"weights", inputs={"rows": [rows], "examples": [examples], "baseline_model": [baseline]})
    manifest = registry.read_manifest(tmp_path / "registry", "toy", 1)
    assert manifest["data"] == {"span": 4, "train": {"num_rows": 7, "ledger": {"documents_in": 3}}}
    assert manifest["baseline"] == {"version": 6, "digest": "ab"}
    assert manifest["lineage"]["baseline_model"]["id"] == 17


def test_old_versions_are_removed(tmp_path, notes):
    for i in range(4):
        _push(tmp_path / str(i), f"weights {i}".encode(), blessed=1, registry_dir=tmp_path / "registry")
    assert registry.list_versions(tmp_path / "registry", "toy") == [3, 4]
    assert notes()[-1] == "toy: old versions removed: 2"


def test_the_manifest_says_where_the_version_comes_from(tmp_path):
    """Model, verdict, metrics, ids in ML Metadata, code and packages; a quotient of nothing is null."""
    config = make_eval_config(max_bits_per_byte=8.0, slice_by_source=True, code_hash="")
    documents = [("a", "x" * 100, "alpha"), ("b", "", "beta")]
    evaluation, blessing = toys.evaluate(tmp_path / "evaluate", documents, config, nats=0.01)
    inputs = {
        "model_blessing": [_artifact(standard_artifacts.ModelBlessing, blessing, 12)],
        "evaluation": [_artifact(standard_artifacts.ModelEvaluation, evaluation, 13)],
    }
    inputs["model_blessing"][0].set_int_custom_property("blessed", 1)
    _push(tmp_path, b"weights", inputs=inputs)
    manifest = registry.read_manifest(tmp_path / "registry", "toy", 1)
    assert manifest["model"] == {"model": {"width": 64}}
    assert manifest["evaluation"]["verdict"] == {
        "blessed": True,
        "reasons": ["overall: bits_per_byte 1.4427 is at most 8.0000"],  # 100 nats / ln 2 / 100 bytes
    }
    assert manifest["evaluation"]["overall"]["num_documents"] == 2
    assert [each["source"] for each in manifest["evaluation"]["by_source"]] == ["alpha", "beta"]
    assert manifest["evaluation"]["by_source"][1]["bits_per_byte"] is None
    assert manifest["evaluation"]["baseline"] is None
    assert manifest["lineage"] == {
        "evaluation": {"id": 13, "type": "ModelEvaluation", "uri": evaluation},
        "model": {"id": 11, "type": "Model", "uri": str(tmp_path / "model")},
        "model_blessing": {"id": 12, "type": "ModelBlessing", "uri": blessing},
    }
    assert manifest["code_hash"] == "0123"
    assert set(manifest["packages"]) == {"python", "tensorflow", "tfx", "tensorflow-text"}


def test_optional_channels_and_bounds():
    model = Channel(type=standard_artifacts.Model)
    parameters: dict[str, Any] = {"registry_dir": "r", "model_name": "toy", "code_hash": "0123"}
    component = RegistryPusher(model, keep_versions=2, **parameters)
    assert set(component.inputs) == {"model"}
    assert component.outputs["pushed_model"].type is standard_artifacts.PushedModel
    assert component.exec_properties == {**parameters, "keep_versions": 2, "recipe": "", "mirror": ""}
    with pytest.raises(ConfigError, match="keep_versions=1"):
        RegistryPusher(model, keep_versions=1, **parameters)


def _push(
    folder: Path,
    weights: bytes,
    blessed: int = 1,
    registry_dir: Path | None = None,
    inputs: dict[str, list[Artifact]] | None = None,
) -> Artifact:
    """Runs the executor on an export with these weights; the pushed model's artifact."""
    model = _artifact(standard_artifacts.Model, str(folder / "model"), 11)
    save_export(folder / "model" / "Format-Serving", weights)
    blessing = _artifact(standard_artifacts.ModelBlessing, str(folder / "blessing"), 12)
    blessing.set_int_custom_property("blessed", blessed)
    pushed = _artifact(standard_artifacts.PushedModel, str(folder / "pushed"), 14)
    Executor().Do(
        {"model": [model], "model_blessing": [blessing], "infra_blessing": [], **(inputs or {})},
        {"pushed_model": [pushed]},
        {
            "registry_dir": str(registry_dir or folder / "registry"),
            "model_name": "toy",
            "keep_versions": 2,
            "code_hash": "0123",
        },
    )
    return pushed


def _artifact(kind: type[Artifact], uri: str, number: int) -> Artifact:
    artifact = kind()
    artifact.uri, artifact.id = uri, number
    return artifact


def _properties(pushed: Artifact) -> tuple[int, str, str, str]:
    return (
        pushed.get_int_custom_property("pushed"),
        pushed.get_string_custom_property("outcome"),
        pushed.get_string_custom_property("pushed_destination"),
        pushed.get_string_custom_property("pushed_version"),
    )
