"""Which version a run is judged against, and how it becomes an artifact."""

import json
import os
from pathlib import Path

import pytest
from tfx.types import standard_artifacts

from components.baseline_model.choice import NONE, choose
from components.baseline_model.executor import Executor
from components.registry_pusher import registry, rollback
from foundation.errors import ModelError
from tests.components.registry_pusher.exports import save_export

WEIGHTS = "variables/variables.data-00000-of-00001"


def test_an_empty_registry_has_no_baseline(tmp_path):
    assert choose(tmp_path / "registry", "toy", "r1") == NONE
    model, outputs = _run(tmp_path, NONE)
    assert outputs == {"model": []}
    assert not os.path.exists(model.uri)


def test_what_is_served_is_the_baseline(tmp_path):
    _push(tmp_path, "a", recipe="r1")
    _push(tmp_path, "b", recipe="r2", baseline=1)
    assert _version(choose(tmp_path / "registry", "toy", "r3")) == 2
    assert _version(choose(tmp_path / "registry", "toy", "r1")) == 2  # version 1 is not what is served
    assert _version(choose(tmp_path / "registry", "toy", "")) == 2
    rollback.rollback(tmp_path / "registry", "toy")
    assert _version(choose(tmp_path / "registry", "toy", "r3")) == 3


def test_a_run_that_repeats_the_served_recipe_gets_its_baseline(tmp_path):
    """Not itself: it would find no difference, or warm-start from its own result."""
    _push(tmp_path, "a", recipe="r1")
    assert choose(tmp_path / "registry", "toy", "r1") == NONE
    _push(tmp_path, "b", recipe="r2", baseline=1)
    assert _version(choose(tmp_path / "registry", "toy", "r2")) == 1


def test_a_model_accepted_on_purpose_is_its_own_baseline_from_then_on(tmp_path):
    _push(tmp_path, "a", recipe="r1")
    _push(tmp_path, "b", recipe="r2", baseline=1, evaluation={"rebaselined": True})
    assert choose(tmp_path / "registry", "toy", "r2") == NONE
    assert _version(choose(tmp_path / "registry", "toy", "r2", rebaseline=True)) == 1
    assert _version(choose(tmp_path / "registry", "toy", "r3")) == 2


def test_the_artifact_is_the_version_with_its_origin(tmp_path):
    _push(tmp_path, "a", lineage={"model": {"id": 17}})
    chosen = choose(tmp_path / "registry", "toy", "")
    model, outputs = _run(tmp_path, chosen)
    assert outputs == {"model": [model]}
    served = tmp_path / "registry" / "toy" / "1"
    taken = Path(model.uri) / "Format-Serving"
    assert (taken / WEIGHTS).read_bytes() == b"a"
    assert not (taken / "manifest.json").exists()
    assert model.get_int_custom_property("registry_version") == 1
    assert model.get_string_custom_property("registry_folder") == str(served)
    assert model.get_string_custom_property("model_digest") == chosen.split(":")[1]
    assert model.get_int_custom_property("model_artifact_id") == 17


def test_without_a_choice_it_is_made_when_the_component_runs(tmp_path):
    """As in a graph that was compiled elsewhere."""
    _push(tmp_path, "a")
    model, _ = _run(tmp_path, "")
    assert model.get_int_custom_property("registry_version") == 1


@pytest.mark.parametrize("fault", ["changed", "missing", "added", "no manifest", "replaced"])
def test_a_baseline_that_fails_its_manifest_is_refused(tmp_path, fault):
    _push(tmp_path, "a")
    chosen = choose(tmp_path / "registry", "toy", "")
    folder = tmp_path / "registry" / "toy" / "1"
    if fault == "changed":
        (folder / WEIGHTS).write_bytes(b"b")
    elif fault == "missing":
        (folder / WEIGHTS).unlink()
    elif fault == "added":
        (folder / "extra").write_bytes(b"x")
    elif fault == "no manifest":
        (folder / "manifest.json").unlink()
        chosen = choose(tmp_path / "registry", "toy", "")
    else:
        manifest = json.loads((folder / "manifest.json").read_text())
        other = {**manifest["files"], WEIGHTS: "0" * 64}
        chosen = f"1:{registry.digest_of(other)}"
    with pytest.raises(ModelError, match="manifest|cannot be the baseline"):
        _run(tmp_path, chosen)


def _push(tmp_path: Path, letter: str, baseline: int | None = None, **facts: object) -> None:
    source = save_export(tmp_path / "exports" / letter, letter.encode())
    known = {"version": baseline} if baseline else None
    registry.push(tmp_path / "registry", "toy", source, {"baseline": known, **facts})


def _run(tmp_path: Path, chosen: str) -> tuple[standard_artifacts.Model, dict]:
    model = standard_artifacts.Model()
    model.uri = str(tmp_path / "artifact")
    outputs = {"model": [model]}
    properties = {"registry_dir": str(tmp_path / "registry"), "model_name": "toy", "baseline": chosen}
    Executor().Do({}, outputs, properties)
    return model, outputs


def _version(chosen: str) -> int:
    return int(chosen.split(":")[0])
