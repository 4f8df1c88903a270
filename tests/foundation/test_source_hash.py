"""The fingerprint of code changes with any line of it and with nothing else."""

import pytest

from foundation import source_hash as module
from foundation.source_hash import source_hash


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "part" / "inner").mkdir(parents=True)
    (tmp_path / "part" / "a.py").write_text("x = 1\n")
    (tmp_path / "part" / "inner" / "b.py").write_text("y = 2\n")
    (tmp_path / "other.py").write_text("z = 3\n")
    monkeypatch.setattr(module, "_ROOT", tmp_path)
    return tmp_path


def test_it_is_stable_and_ignores_order_and_other_files(project):
    first = source_hash("part", "other.py")
    (project / "part" / "notes.txt").write_text("not code")
    (project / "elsewhere.py").write_text("not named")
    assert source_hash("other.py", "part") == first


@pytest.mark.parametrize("change", ["edit", "add", "rename"])
def test_any_change_of_code_changes_it(project, change):
    before = source_hash("part")
    nested = project / "part" / "inner" / "b.py"
    if change == "edit":
        nested.write_text("y = 3\n")
    elif change == "add":
        (project / "part" / "c.py").write_text("")
    else:
        nested.rename(nested.with_name("renamed.py"))
    assert source_hash("part") != before


def test_another_version_of_a_library_changes_it(project, monkeypatch):
    lock = project / "requirements.lock"
    monkeypatch.setattr(module, "_LOCK", lock)
    hashes = [source_hash("part")]
    for content in ("tensorflow==1.0\n", "tensorflow==2.0\n"):
        lock.write_text(content)
        hashes.append(source_hash("part"))
    assert len(set(hashes)) == 3


def test_a_place_without_code_is_an_error(project):
    with pytest.raises(FileNotFoundError, match="missing"):
        source_hash("missing")
