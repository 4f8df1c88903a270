"""`tokenmill ingest`: every option reaches the ingest, and everything left out is told, each time."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foundation.errors import ConfigError
from ingest.options import IngestOptions
from ingest.report import IngestReport
from runners.cli.app import app

Command = Callable[..., str]


@pytest.fixture
def command(data: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `tokenmill ingest` beside `data`; gives what it prints."""
    monkeypatch.chdir(data.parent)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["ingest", *arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return run


def report(**fields: object) -> IngestReport:
    empty: dict[str, object] = dict.fromkeys(("num_documents", "num_bytes", "num_files", "num_input_bytes"), 0)
    empty |= dict.fromkeys(("num_shards", "num_duplicates", "num_empty_code_files"), 0)
    empty |= {"bad": {}, "num_ignored_files": {}, "bytes_by_source": {}, "num_near_duplicates": None, "seconds": 1.0}
    empty |= {"duplicate_examples": [], "bad_examples": [], "near_duplicate_examples": []}
    return IngestReport(**{"span_folder": "out/span-1", "unchanged": False, **empty, **fields})  # type: ignore[arg-type]


def test_every_option_reaches_the_ingest(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[IngestOptions] = []

    def run_ingest(options: IngestOptions) -> IngestReport:
        given.append(options)
        return report()

    monkeypatch.setattr("ingest.run.run_ingest", run_ingest)
    command(
        *("a", "b", "--out", "out", "--span", "3", "--stdlib", "--text-field", "t", "--id-field", "i"),
        *("--source-field", "s", "--max-document-bytes", "2000", "--on-bad", "skip", "--keep-duplicates"),
        *("--near-duplicates", "--near-duplicate-similarity", "0.5", "--line-endings", "lf"),
        *("--extension", "f90", "--extension", ".adb", "--shard-bytes", "3000", "--num-workers", "2"),
    )
    command("a", "--out", "out")
    assert given == [
        IngestOptions(
            inputs=("a", "b"),
            out="out",
            span=3,
            stdlib=True,
            text_field="t",
            id_field="i",
            source_field="s",
            max_document_bytes=2000,
            on_bad="skip",
            dedup=False,
            near_duplicates=True,
            near_duplicate_similarity=0.5,
            line_endings="lf",
            extensions=(".f90", ".adb"),
            shard_bytes=3000,
            num_workers=2,
        ),
        IngestOptions(inputs=("a",), out="out"),
    ]


def test_what_was_left_out_is_told_also_when_nothing_is_done(command: Command, data: Path) -> None:
    (data / "a.txt").write_text("text")
    (data / "copy.txt").write_text("text")
    (data / "b.txt").write_bytes(b"a\0b")
    (data / "e.py").touch()
    (data / "p.png").touch()
    (data / ".hidden").touch()
    left_out = [
        "  1 exact duplicates left out",
        "  1 empty source files",
        "  2 files not read: 1 .png, 1 hidden",
        "  1 not taken: NUL character",
        "    data/b.txt, line 1, byte 2 of it: NUL character (byte 0x00)",
    ]
    first = command("data", "--out", "out", "--on-bad", "skip").splitlines()
    assert first[0].startswith("out/span-1: 1 document, 0.0 kB in ")
    assert first[0].endswith(" MB/s)")
    assert first[1:] == left_out
    again = command("data", "--out", "out", "--on-bad", "skip").splitlines()
    assert again == ["out/span-1: up to date (1 document, 0.0 kB)", *left_out]


def test_what_is_too_much_to_print_is_counted(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    told = report(
        bad={"empty text": 9},
        bad_examples=[f"{number}.txt: empty text" for number in range(9)],
        num_near_duplicates=1234,
        near_duplicate_examples=["a ~ b (0.90)"],
    )
    monkeypatch.setattr("ingest.run.run_ingest", lambda options: told)
    lines = command("a", "--out", "out", "--near-duplicates").splitlines()
    assert lines[1:] == [
        "  1,234 nearly the same as an earlier one (kept)",
        "    a ~ b (0.90)",
        "  9 not taken: empty text",
        *(f"    {number}.txt: empty text" for number in range(5)),
        "    and 4 more",
    ]


def test_an_ending_that_can_match_nothing_is_refused(command: Command) -> None:
    with pytest.raises(ConfigError, match=r"Received: extensions='\.tar\.f90'"):
        command("a", "--out", "out", "--extension", "tar.f90")
