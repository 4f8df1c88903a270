"""Going back: what is served afterwards, what a pipeline may push again, and what a person is told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from components.registry_pusher import registry, retention, rollback
from foundation.errors import ModelError
from runners.cli import registry_command
from tests.components.registry_pusher.exports import reader_of, save_export

WEIGHTS = "variables/variables.data-00000-of-00001"


@pytest.fixture
def three(tmp_path) -> Path:
    """A registry with versions 1 to 3, of the exports a, b, c."""
    for letter in "abc":
        _push(tmp_path, letter)
    return tmp_path / "registry"


def test_a_rollback_is_what_a_server_sees_as_newest(three):
    """The largest number holds the earlier model; the later version stays as it was."""
    made = rollback.rollback(three, "toy", reason="it swears")
    assert made == (4, three / "toy" / "4", True)
    assert max(map(int, os.listdir(three / "toy"))) == 4
    assert [_weights(three, version) for version in (1, 2, 3, 4)] == [b"a", b"b", b"c", b"b"]
    assert all(registry.verify(three, "toy", version) == [] for version in (1, 2, 3, 4))
    manifest = registry.read_manifest(three, "toy", 4)
    assert manifest["from"] == "b"  # what was known of version 2
    restored = manifest["restored"]
    assert (restored["action"], restored["version"], restored["instead_of"], restored["reason"]) == (
        "rollback",
        2,
        3,
        "it swears",
    )


def test_a_second_rollback_goes_further_back(three):
    """Not to what was just taken back."""
    rollback.rollback(three, "toy")
    assert _weights(three, rollback.rollback(three, "toy").version) == b"a"
    with pytest.raises(ModelError, match="no version before 5"):
        rollback.rollback(three, "toy")


def test_what_was_rolled_back_is_not_pushed_again_until_promoted(three, tmp_path):
    rollback.rollback(three, "toy")
    with pytest.raises(registry.WithdrawnError, match="version 3, which was rolled back"):
        _push(tmp_path, "c")
    assert registry.list_versions(three, "toy") == [1, 2, 3, 4]
    assert _push(tmp_path, "d") == 5
    with pytest.raises(registry.WithdrawnError):  # known beyond the version that took it back
        _push(tmp_path, "c")
    promoted = rollback.promote(three, "toy", 3)
    assert (promoted.version, _weights(three, 6)) == (6, b"c")
    assert registry.withdrawn(three, "toy") == {}
    assert _push(tmp_path, "c") == 6  # it is served: nothing new


def test_to_a_version_of_choice(three):
    assert _weights(three, rollback.rollback(three, "toy", 1).version) == b"a"
    with pytest.raises(ModelError, match="registry promote 4"):
        rollback.rollback(three, "toy", 4)
    with pytest.raises(ModelError, match="no such version; known: 1, 2, 3, 4"):
        rollback.promote(three, "toy", 9)


def test_what_is_served_already_is_not_published_again(three):
    assert rollback.promote(three, "toy", 3) == (3, three / "toy" / "3", False)


def test_a_damaged_version_is_not_served_again(three):
    (three / "toy" / "2" / WEIGHTS).write_bytes(b"x")
    with pytest.raises(ModelError, match=r"damaged: variables/variables\.data"):
        rollback.rollback(three, "toy", 2)
    assert registry.list_versions(three, "toy") == [1, 2, 3]


def test_a_damaged_version_can_be_gone_back_from(three):
    """Though what it holds is not what its manifest says."""
    (three / "toy" / "3" / WEIGHTS).write_bytes(b"x")
    assert _weights(three, rollback.rollback(three, "toy").version) == b"b"


def test_retention_keeps_where_a_rollback_would_go(three, tmp_path):
    """Served: 4, which is 2 again. Before it by number: 3. Before it in the history of what was served: 1."""
    rollback.rollback(three, "toy")
    assert retention.remove_old(three, "toy", keep_versions=1) == [2]
    assert registry.list_versions(three, "toy") == [1, 3, 4]
    assert _weights(three, rollback.rollback(three, "toy").version) == b"a"


def test_a_rollback_killed_midway_leaves_nothing_to_load(three, tmp_path):
    """The copy stands still at a pipe that nobody feeds; the process that copies is killed there."""
    weights = three / "toy" / "2" / WEIGHTS
    content = weights.read_bytes()
    weights.unlink()
    os.mkfifo(weights)
    root = Path(__file__).resolve().parents[3]
    program = f"from components.registry_pusher import rollback; rollback.rollback({str(three)!r}, 'toy', 2)"
    process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(root)})
    with reader_of(weights) as checksum:
        checksum.write(content)
    with reader_of(weights):
        assert any(path.name.startswith(".staging-") for path in (three / "toy").iterdir())
        process.kill()
        process.wait(timeout=60)
    assert registry.newest_version(three, "toy") == 3
    assert registry.withdrawn(three, "toy") == {}


def test_the_commands(three, tmp_path):
    """list, show, verify, rollback and promote, as a person types them."""
    place = ["--folder", str(three / "toy")]
    assert "version 4 is served now: version 2 again, instead of 3" in _run("rollback", *place)
    listed = _run("list", *place).splitlines()
    assert [line.split()[0] for line in listed[1:]] == ["4", "3", "2", "1"]
    assert listed[1].rstrip().endswith("served, version 2 again (rollback)")
    assert listed[2].rstrip().endswith("rolled back")
    assert json.loads(_run("show", *place))["version"] == 4
    assert json.loads(_run("show", "1", *place))["from"] == "a"
    assert _run("verify", "--all", *place).splitlines() == [f"version {number}: sound" for number in (1, 2, 3, 4)]
    assert "version 5 is served now: version 3 again, instead of 4" in _run("promote", "3", *place)
    (three / "toy" / "1" / WEIGHTS).write_bytes(b"x")
    failed = CliRunner().invoke(registry_command.app, ["verify", "1", *place])
    assert isinstance(failed.exception, ModelError) and "version 1: variables/" in str(failed.exception)


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(registry_command.app, list(arguments), catch_exceptions=False, env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return result.output


def _push(tmp_path: Path, letter: str) -> int:
    source = save_export(tmp_path / "exports" / letter, letter.encode())
    return registry.push(tmp_path / "registry", "toy", source, {"from": letter}).version


def _weights(registry_dir: Path, version: int) -> bytes:
    return (registry_dir / "toy" / str(version) / WEIGHTS).read_bytes()
