"""Files and folders appear whole or not at all."""

import pytest

from foundation import atomic


def test_an_exception_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    target = tmp_path / "file.json"
    atomic.write_text(target, "old")

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        atomic.write_text(target, "new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]


def test_a_folder_appears_with_all_its_files(tmp_path):
    target = tmp_path / "deep" / "folder"
    with atomic.new_folder(target) as staged:
        (staged / "a").write_text("1")
        assert not target.exists()
        assert staged.name.startswith(atomic.STAGING_PREFIX)
    assert (target / "a").read_text() == "1"
    assert [path.name for path in target.parent.iterdir()] == ["folder"]


def test_a_failed_folder_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), atomic.new_folder(tmp_path / "folder") as staged:
        (staged / "a").write_text("1")
        raise RuntimeError("in the middle")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_content_is_never_replaced(tmp_path):
    target = tmp_path / "folder"
    with atomic.new_folder(target) as staged:
        (staged / "a").write_text("first")
    with pytest.raises(OSError), atomic.new_folder(target) as staged:
        (staged / "a").write_text("second")
    assert (target / "a").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
