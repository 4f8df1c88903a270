"""Span folders are numbered, published whole, and staging of the dead is removed, of the living never."""

from pathlib import Path

import pytest

from foundation.errors import ConfigError
from ingest.span import corpus_lock, publish, spans, staging_folder


def test_spans_are_found_by_number(tmp_path: Path) -> None:
    for name in ("span-2", "span-010", "span-x", "xspan-3", ".staging-span-4"):
        (tmp_path / name).mkdir()
    (tmp_path / "span-5").touch()
    assert spans(tmp_path) == {2: tmp_path / "span-2", 10: tmp_path / "span-010"}
    assert spans(tmp_path / "nowhere") == {}


def test_the_next_number_is_after_the_highest(tmp_path: Path) -> None:
    (tmp_path / "span-7").mkdir()
    with staging_folder(tmp_path) as staging:
        (staging / "file").write_text("content")
        with corpus_lock(tmp_path):
            folder = publish(staging, tmp_path, None)
    assert folder == tmp_path / "span-8"
    assert [path.name for path in folder.iterdir()] == ["file"]


def test_a_span_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "span-7").mkdir()
    with staging_folder(tmp_path) as staging, corpus_lock(tmp_path), pytest.raises(ConfigError, match="span-7"):
        publish(staging, tmp_path, 7)
    assert list((tmp_path / "span-7").iterdir()) == []


def test_staging_is_removed_at_the_end_and_on_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), staging_folder(tmp_path):
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == [".ingest.lock"]


def test_staging_of_the_dead_is_removed_and_of_the_living_is_not(tmp_path: Path) -> None:
    for name in (".staging-ingest-dead", ".staging-ingest-newborn", ".staging-other"):
        (tmp_path / name).mkdir()
    (tmp_path / ".staging-ingest-dead" / ".alive").touch()
    with staging_folder(tmp_path) as first, staging_folder(tmp_path) as second:
        assert {path.name for path in tmp_path.iterdir()} == {".ingest.lock", ".staging-other", first.name, second.name}
