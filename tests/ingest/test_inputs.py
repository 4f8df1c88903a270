"""What is taken from files, folders and globs, under which names; what is left is counted or named."""

import os
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import ConfigError, CorpusError
from ingest.inputs import Discovery, discover
from ingest.options import IngestOptions
from ingest.stdlib import stdlib_files


def write(path: Path, text: str = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def find(data: Path, *inputs: Any, **options: Any) -> Discovery:
    out = options.pop("out", data.parent / "corpus")
    return discover(IngestOptions(out=str(out), inputs=[str(place) for place in inputs], **options))


def names(found: Discovery) -> list[tuple[str, str, str]]:
    return [(file.name, file.source, file.kind) for file in found.files]


@pytest.fixture
def tree(data: Path) -> Path:
    for name in ("z.txt", "a.md", "law/de.jsonl.gz", "law/us/old.jsonl", "code/x.py", "t.parquet", "u.tfrecord.zst"):
        write(data / name)
    for name in (".hidden.txt", ".git/config.txt", "code/__pycache__/x.py", "_SUCCESS", "logo.png", "law/x.csv.gz"):
        write(data / name)
    return data


TREE = [
    ("data/a.md", "data", "text"),
    ("data/code/x.py", "code", "code"),
    ("data/law/de.jsonl.gz", "law", "jsonl"),
    ("data/law/us/old.jsonl", "law", "jsonl"),
    ("data/t.parquet", "data", "parquet"),
    ("data/u.tfrecord.zst", "data", "tfrecord"),
    ("data/z.txt", "data", "text"),
]


def test_a_folder_is_read_to_the_bottom_and_what_no_reader_is_for_is_counted(tree: Path) -> None:
    found = find(tree, tree)
    assert names(found) == TREE
    assert found.ignored == {"": 1, ".png": 1, ".gz": 1, "hidden": 2}
    assert found.bad == []


def test_names_do_not_depend_on_how_a_file_was_given(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(find(tree, f"{tree}/**/*")) == TREE
    monkeypatch.chdir(tree)
    assert names(find(tree, ".")) == TREE
    assert names(find(tree, "z.txt", "a.md")) == [TREE[6], TREE[0]]
    assert names(find(tree, "?.[mt][dx]*")) == [TREE[0], TREE[6]]


def test_the_source_can_be_given(tree: Path) -> None:
    assert {file.source for file in find(tree, tree, source="mine").files} == {"mine"}


def test_the_corpus_itself_is_no_input(tree: Path) -> None:
    write(tree / "corpus" / "span-1" / "documents-00000-of-00001.tfrecord")
    assert names(find(tree, tree, out=tree / "corpus")) == TREE
    assert names(find(tree, f"{tree}/**/*", out=tree / "corpus")) == TREE


def test_folders_that_a_glob_matches_are_read_as_if_the_shell_had_given_them(tree: Path) -> None:
    assert names(find(tree, f"{tree}/*")) == TREE
    assert names(find(tree, f"{tree}/l*")) == TREE[2:4]
    assert names(find(tree, f"{tree}/**")) == TREE
    assert find(tree, f"{tree}/**").bad == []


@pytest.mark.parametrize("out", [".", "law", ".."])
def test_out_that_holds_the_inputs_hides_none_of_them(tree: Path, out: str) -> None:
    write(tree / out / "span-01" / "documents-00000-of-00001.tfrecord")
    assert names(find(tree, tree, out=tree / out)) == TREE
    assert names(find(tree, f"{tree}/**/*", out=tree / out)) == TREE


def test_a_file_given_twice_is_taken_once_and_named(tree: Path) -> None:
    found = find(tree, tree, tree / "law")
    assert names(found) == TREE
    assert [str(bad) for bad in found.bad] == [
        f"{tree}/law/de.jsonl.gz: file given twice (already taken as {tree}/law/de.jsonl.gz)",
        f"{tree}/law/us/old.jsonl: file given twice (already taken as {tree}/law/us/old.jsonl)",
    ]


def test_links_inside_a_folder_add_nothing_and_do_not_go_round(data: Path) -> None:
    write(data / "sub" / "z.txt")
    (data / "a.txt").symlink_to("sub/z.txt")
    (data / "round").symlink_to(data)
    found = find(data, data)
    assert names(found) == [("data/sub/z.txt", "sub", "text")]
    assert found.ignored == {"link to a file that is taken": 1}


def test_a_glob_that_goes_round_takes_each_file_by_its_own_name(data: Path) -> None:
    write(data / "a.txt"), write(data / "sub" / "b.txt")
    (data / "loop").symlink_to(data)
    taken = [("data/a.txt", "data", "text"), ("data/sub/b.txt", "sub", "text")]
    assert names(find(data, f"{data}/**/*.txt")) == taken
    assert sorted(names(find(data, f"{data}/*"))) == taken


def test_shards_of_tfrecords_are_named_with_their_number_at_the_end(data: Path) -> None:
    for name in ("a.tfrecord-00000-of-00010", "b.tfrecords-1-of-2.gz", "c.txt-00000-of-00010", "d.tfrecord-1-of-2.bz2"):
        write(data / name)
    found = find(data, data)
    assert [(file.name, file.kind) for file in found.files] == [
        ("data/a.tfrecord-00000-of-00010", "tfrecord"),
        ("data/b.tfrecords-1-of-2.gz", "tfrecord"),
    ]
    assert found.ignored == {".txt-00000-of-00010": 1, ".bz2": 1}


def test_what_cannot_be_read_is_named(data: Path) -> None:
    write(data / "good.txt")
    (data / "gone.txt").symlink_to("nowhere")
    os.mkfifo(data / "pipe.txt")
    found = find(data, data, data / "missing", f"{data}/*.md")
    assert names(found) == [("data/good.txt", "data", "text")]
    assert [str(bad) for bad in found.bad] == [
        f"{data}/pipe.txt: unreadable file (not a regular file)",
        f"{data}/gone.txt: unreadable file (No such file or directory)",
        f"{data}/missing: nothing matched (no such file or folder)",
        f"{data}/*.md: nothing matched (no file that a reader is for)",
    ]


def test_a_name_that_is_not_utf8_is_named(data: Path) -> None:
    Path(os.fsdecode(os.fsencode(data) + b"/\xff.txt")).write_text("text")
    found = find(data, data)
    assert (found.files, [bad.reason for bad in found.bad]) == ([], ["file name that is not UTF-8"])


def test_a_file_that_no_reader_is_for_is_refused_when_given_by_name(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"no reader for this file.*Received: '.*/logo\.png'"):
        find(data, write(data / "logo.png"))


def test_endings_of_source_code_can_be_chosen(data: Path) -> None:
    write(data / "a.f90"), write(data / "b.py")
    assert names(find(data, data, extensions=["F90"])) == [("data/a.f90", "data", "code")]


def test_two_files_with_one_name_are_found_before_anything_is_read(data: Path) -> None:
    first, second = write(data / "a" / "x" / "1.txt"), write(data / "b" / "x" / "1.txt")
    with pytest.raises(CorpusError, match=f"same doc_id 'x/1.txt': {first} and {second}"):
        find(data, data / "a" / "x", data / "b" / "x")


def test_the_standard_library_comes_without_its_tests() -> None:
    files = stdlib_files()
    by_name = {file.name: file for file in files}
    assert len(files) > 400
    assert sum(file.size for file in files) > 8_000_000
    assert by_name["stdlib/json/decoder.py"].source == "json"
    assert by_name["stdlib/argparse.py"].source == "argparse"
    parts = {part for file in files for part in file.name.split("/")}
    assert not parts & {"test", "tests", "idle_test", "site-packages", "__pycache__"}
    assert list(by_name) == sorted(by_name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing to ingest"),
        ({"inputs": "a.txt"}, "sequences of strings"),
        (
            {"stdlib": True, "on_bad": "ignore"},
            "on_bad must be one of fail, skip, quarantine. Received: on_bad='ignore'",
        ),
        ({"stdlib": True, "line_endings": "crlf"}, "line_endings must be one of keep, lf"),
        (
            {"stdlib": True, "max_document_bytes": 15},
            "max_document_bytes must be at least 16. Received: max_document_b",
        ),
        ({"stdlib": True, "num_workers": 0}, "num_workers must be at least 1"),
        ({"stdlib": True, "near_duplicate_similarity": 0.0}, "near_duplicate_similarity must be above 0"),
        ({"stdlib": True, "source": "a", "source_field": "b"}, "exclude each other"),
        ({"stdlib": True, "source": ""}, "source must be UTF-8 text"),
        ({"stdlib": True, "source": "\udcff"}, r"source must be UTF-8 text without NUL. Received: source='\\udcff'"),
        ({"stdlib": True, "extensions": [".d.ts"]}, "the last ending .* Received: extensions='.d.ts'"),
        ({"stdlib": True, "extensions": [""]}, "the last ending .* Received: extensions='.'"),
        ({"stdlib": True, "extensions": ["a/b"]}, "the last ending .* Received: extensions='.a/b'"),
        ({"stdlib": True, "extensions": ["gz"]}, "without compression"),
    ],
)
def test_options_are_checked_where_they_are_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        IngestOptions(out="corpus", **options)
