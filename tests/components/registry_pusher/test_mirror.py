"""The copy in an object store: TensorFlow's file system in memory stands for one."""

import json
from pathlib import Path

import pytest
import tensorflow as tf
from typer.testing import CliRunner

from components.registry_pusher import mirror, registry, retention, rollback
from foundation.errors import HostError
from runners.cli import registry_command
from tests.components.registry_pusher.exports import save_export

WEIGHTS = "variables/variables.data-00000-of-00001"


@pytest.fixture
def store(tmp_path) -> str:
    """A store of this test's own."""
    return f"ram://{tmp_path.name}/models"


def test_it_holds_what_the_registry_holds(tmp_path, store):
    """Added one by one, with every file and manifest; removed when retention has removed it; a second call is idle."""
    place = tmp_path / "registry"
    for letter in "abc":
        _push(place, tmp_path, letter)
    assert mirror.mirror(place, "toy", store) == [1, 2, 3]
    assert _versions(store) == {1: b"a", 2: b"b", 3: b"c"}
    assert json.loads(_read(f"{store}/toy/2/manifest.json"))["version"] == 2
    assert mirror.mirror(place, "toy", store) == []
    rollback.rollback(place, "toy")
    retention.remove_old(place, "toy", keep_versions=1)
    assert mirror.mirror(place, "toy", store) == [4]
    assert _versions(store) == {1: b"a", 3: b"c", 4: b"b"}


def test_a_crash_leaves_nothing_that_can_be_loaded(tmp_path, store, monkeypatch):
    """Wherever it comes: without saved_model.pb a version is none; the next call completes it."""
    place = tmp_path / "registry"
    _push(place, tmp_path, "a")
    copy, copied = tf.io.gfile.copy, []

    def failing(source, target, overwrite=False):
        if len(copied) == allowed:
            raise tf.errors.UnavailableError(None, None, "the store is away")
        copied.append(target)
        copy(source, target, overwrite)

    monkeypatch.setattr(tf.io.gfile, "copy", failing)
    for allowed in range(5):  # noqa: B007 - read by `failing`
        copied.clear()
        with pytest.raises(HostError, match=r"the store is away.*tokenmill registry mirror"):
            mirror.mirror(place, "toy", store)
        assert not tf.io.gfile.exists(f"{store}/toy/1/saved_model.pb")
    monkeypatch.undo()
    assert mirror.mirror(place, "toy", store) == [1]
    assert _versions(store) == {1: b"a"}


def test_another_model_under_the_same_number_is_replaced(tmp_path, store):
    """As after a registry that was begun anew."""
    for number, letter in enumerate("ab"):
        _push(tmp_path / str(number), tmp_path, letter)
        assert mirror.mirror(tmp_path / str(number), "toy", store) == [1]
        assert _versions(store) == {1: letter.encode()}


def test_a_rollback_reaches_the_mirror(tmp_path, store):
    """By the command, with the mirror of the configuration."""
    place = tmp_path / "registry"
    for letter in "ab":
        _push(place, tmp_path, letter)
    config = tmp_path / "toy.yaml"
    config.write_text(f"name: toy\ncorpus: {{documents: d}}\nregistry: {{folder: {place}, mirror: '{store}'}}\n")
    for arguments, expected in (
        (["mirror"], {1: b"a", 2: b"b"}),
        (["rollback"], {1: b"a", 2: b"b", 3: b"a"}),
        (["promote", "2"], {1: b"a", 2: b"b", 3: b"a", 4: b"b"}),
    ):
        CliRunner().invoke(registry_command.app, [*arguments, "--config", str(config)], catch_exceptions=False)
        assert _versions(store) == expected


def _push(place: Path, tmp_path: Path, letter: str) -> None:
    registry.push(place, "toy", save_export(tmp_path / "exports" / letter, letter.encode()), {})


def _versions(store: str) -> dict[int, bytes]:
    """The weights of every version that a server could load."""
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(f"{store}/toy")]
    loadable = [name for name in names if tf.io.gfile.exists(f"{store}/toy/{name}/saved_model.pb")]
    return {int(name): _read(f"{store}/toy/{name}/{WEIGHTS}") for name in sorted(loadable)}


def _read(path: str) -> bytes:
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read()
