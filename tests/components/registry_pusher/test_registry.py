"""The folder tree: what a push leaves, whatever happens to it."""

import json
import os
import time
from pathlib import Path

import pytest

from components.registry_pusher import registry, retention
from foundation.errors import ConfigError, HostError, ModelError
from tests.components.registry_pusher.exports import reader_of, save_export, start_push

WEIGHTS = "variables/variables.data-00000-of-00001"


def test_a_push_is_a_version_that_serving_can_load(tmp_path):
    """The files as exported, a manifest beside them, and nothing else in the model's folder."""
    source = save_export(tmp_path / "export", b"weights")
    pushed = registry.push(tmp_path / "registry", "toy", source, {"code_hash": "0123"})
    assert pushed == (1, tmp_path / "registry" / "toy" / "1", True)
    assert sorted(os.listdir(pushed.folder.parent)) == ["1"]
    assert (pushed.folder / WEIGHTS).read_bytes() == b"weights"
    manifest = registry.read_manifest(tmp_path / "registry", "toy", 1)
    assert manifest["files"] == {
        "assets.extra/tokenmill.json": "640a75ecb949de6e97251a42f3cfab02c95d0eaf5578ecf1dc3fcc9a1d301ff5",
        "assets/spm": "5f97e3774c51edd1d63706c2ec3826c564a067794770cdab0f8c4797971cacf9",
        "saved_model.pb": "eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d",
        WEIGHTS: "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c",
    }
    assert (manifest["model_name"], manifest["version"], manifest["code_hash"]) == ("toy", 1, "0123")


def test_versions_only_grow(tmp_path):
    """Also past a gap, and by number, not by name: 10 follows 9."""
    registry_dir = tmp_path / "registry"
    versions = [registry.push(registry_dir, "toy", _export(tmp_path, i), {}).version for i in range(11)]
    assert versions == list(range(1, 12))
    assert retention.remove_old(registry_dir, "toy", keep_versions=2) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert registry.push(registry_dir, "toy", _export(tmp_path, 11), {}).version == 12
    assert registry.list_versions(registry_dir, "toy") == [10, 11, 12]
    assert registry.newest_version(registry_dir, "toy") == 12


def test_an_unchanged_model_is_not_pushed_twice(tmp_path):
    registry_dir = tmp_path / "registry"
    first, second = _export(tmp_path, 1), _export(tmp_path, 2)
    assert registry.push(registry_dir, "toy", first, {}).is_new
    assert registry.push(registry_dir, "toy", first, {}) == (1, registry_dir / "toy" / "1", False)
    assert registry.push(registry_dir, "toy", second, {}).version == 2
    # Only the newest counts: going back to an earlier model is a new version.
    assert registry.push(registry_dir, "toy", first, {}) == (3, registry_dir / "toy" / "3", True)


def test_a_damaged_version_is_no_reason_not_to_push(tmp_path):
    registry_dir = tmp_path / "registry"
    source = _export(tmp_path, 1)
    _flip_a_byte(registry.push(registry_dir, "toy", source, {}).folder / WEIGHTS)
    assert registry.push(registry_dir, "toy", source, {}).version == 2


def test_verify_names_every_fault(tmp_path):
    registry_dir = tmp_path / "registry"
    folder = registry.push(registry_dir, "toy", _export(tmp_path, 1), {}).folder
    assert registry.verify(registry_dir, "toy", 1) == []
    _flip_a_byte(folder / WEIGHTS)
    (folder / "assets" / "spm").unlink()
    (folder / "extra").write_text("x")
    faults = registry.verify(registry_dir, "toy", 1)
    assert [fault.split(":")[0] for fault in faults] == ["assets/spm", "extra", WEIGHTS]
    assert [fault.split(": ")[1][:7] for fault in faults] == ["missing", "not in ", "SHA-256"]


def test_a_copied_version_is_not_taken_for_another(tmp_path):
    """A folder renamed by hand says who it was."""
    registry_dir = tmp_path / "registry"
    folder = registry.push(registry_dir, "toy", _export(tmp_path, 1), {}).folder
    folder.rename(folder.with_name("4"))
    assert registry.verify(registry_dir, "toy", 4) == ["manifest.json: says version 1"]


def test_the_served_version_and_its_predecessor_stay(tmp_path):
    registry_dir = tmp_path / "registry"
    for i in range(6):
        registry.push(registry_dir, "toy", _export(tmp_path, i), {})
    assert retention.remove_old(registry_dir, "toy", keep_versions=1, served=4) == [1, 2, 5]
    assert registry.list_versions(registry_dir, "toy") == [3, 4, 6]
    assert retention.remove_old(registry_dir, "toy", keep_versions=1) == [3]
    assert os.listdir(registry_dir / "toy") != [] and retention.remove_old(registry_dir, "none", 1) == []


@pytest.mark.parametrize("locks", [True, False])
def test_pushers_at_once_all_land(tmp_path, locks):
    """Four processes of five models each: twenty versions, each sound and each of its own model."""
    registry_dir = tmp_path / "registry"
    sources = [[_export(tmp_path, 5 * worker + i) for i in range(5)] for worker in range(4)]
    processes = [start_push(registry_dir, *mine, locks=locks) for mine in sources]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    reported = {
        int(version): str(source)
        for mine, output in zip(sources, outputs, strict=True)
        for source, version in zip(mine, output.split(), strict=True)
    }
    assert registry.list_versions(registry_dir, "toy") == list(range(1, 21)) == sorted(reported)
    for version, source in reported.items():
        assert registry.verify(registry_dir, "toy", version) == []
        assert registry.read_manifest(registry_dir, "toy", version)["from"] == source
    assert sorted(os.listdir(registry_dir / "toy"), key=int) == [str(version) for version in range(1, 21)]


def test_a_number_is_taken_when_the_copy_is_whole(tmp_path):
    """So a pusher that takes its time is not overtaken into an old number."""
    registry_dir = tmp_path / "registry"
    slow, fifo = _export_with_fifo(tmp_path)
    process = start_push(registry_dir, slow)
    with reader_of(fifo) as checksum:
        checksum.write(b"slow")
    with reader_of(fifo) as copy:
        assert registry.push(registry_dir, "toy", _export(tmp_path, 1), {}).version == 1
        assert registry.push(registry_dir, "toy", _export(tmp_path, 2), {}).version == 2
        copy.write(b"slow")
    assert process.communicate(timeout=60)[0] == "3\n"
    assert (registry_dir / "toy" / "3" / WEIGHTS).read_bytes() == b"slow"
    assert registry.verify(registry_dir, "toy", 3) == []


def test_a_pusher_killed_midway_leaves_nothing_to_load(tmp_path):
    """kill -9 while it copies: no version appears, the next push works, and the remains go once they are old."""
    registry_dir = tmp_path / "registry"
    slow, fifo = _export_with_fifo(tmp_path)
    process = start_push(registry_dir, slow)
    with reader_of(fifo) as checksum:
        checksum.write(b"slow")
    with reader_of(fifo):
        (staged,) = (registry_dir / "toy").iterdir()
        assert (staged / "saved_model.pb").exists()
        # Alive: left alone, however old it looks.
        _make_old(staged)
        registry.push(registry_dir, "toy", _export(tmp_path, 1), {})
        assert staged.exists()
        process.kill()
        process.wait(timeout=60)
    assert registry.list_versions(registry_dir, "toy") == [1]
    assert not staged.name.isdigit()
    # Dead, but fresh: left alone, for what a shared file system says of locks is not certain.
    os.utime(staged)
    registry.push(registry_dir, "toy", _export(tmp_path, 2), {})
    assert staged.exists()
    _make_old(staged)
    registry.push(registry_dir, "toy", _export(tmp_path, 3), {})
    assert sorted(os.listdir(registry_dir / "toy")) == ["1", "2", "3"]


def test_what_is_no_saved_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"holds no saved_model\.pb"):
        registry.push(tmp_path / "registry", "toy", tmp_path, {})
    assert not (tmp_path / "registry").exists()


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b"])
def test_names_that_would_leave_the_registry_are_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="model_name"):
        registry.list_versions(tmp_path, name)


def test_a_registry_that_cannot_be_written_is_an_error_of_the_host(tmp_path):
    """The model's folder is a file."""
    (tmp_path / "toy").write_text("in the way")
    with pytest.raises(HostError, match="no version can be written"):
        registry.push(tmp_path, "toy", _export(tmp_path, 1), {})


def test_absent_and_damaged_manifests_are_errors(tmp_path):
    folder = registry.push(tmp_path, "toy", _export(tmp_path, 1), {}).folder
    with pytest.raises(ModelError, match="no such version; known: 1"):
        registry.read_manifest(tmp_path, "toy", 2)
    (folder / registry.MANIFEST_NAME).write_text(json.dumps([1]))
    with pytest.raises(ModelError, match="is not a manifest"):
        registry.verify(tmp_path, "toy", 1)
    (folder / registry.MANIFEST_NAME).unlink()
    with pytest.raises(ModelError, match="is missing"):
        registry.verify(tmp_path, "toy", 1)


def _export(tmp_path: Path, number: int) -> Path:
    return save_export(tmp_path / "exports" / str(number), f"weights {number}".encode())


def _export_with_fifo(tmp_path: Path) -> tuple[Path, Path]:
    """An export whose weights come through a pipe: its reader stands still until the test feeds it."""
    export = save_export(tmp_path / "slow", b"")
    (export / WEIGHTS).unlink()
    os.mkfifo(export / WEIGHTS)
    return export, export / WEIGHTS


def _flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


def _make_old(folder: Path) -> None:
    long_ago = time.time() - 2 * registry.STALE_AFTER_S
    for parent, _, names in os.walk(folder):
        for name in (*names, ""):
            os.utime(os.path.join(parent, name), (long_ago, long_ago))
