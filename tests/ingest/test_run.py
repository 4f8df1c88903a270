"""A whole ingest: what it writes, that it does so once, and what it does about bad input."""

import hashlib
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import ConfigError, CorpusError, HostError
from foundation.tfrecord import frame_one
from ingest.examples import _example_class
from ingest.options import IngestOptions
from ingest.report import IngestReport, Progress
from ingest.run import run_ingest

Ingest = Callable[..., IngestReport]
Documents = Callable[[IngestReport], list[tuple[str, bytes, str]]]


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below a folder: inode, time, content."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".ingest.lock")
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.fixture
def mixed(data: Path) -> Path:
    """Two documents and a copy."""
    (data / "law").mkdir()
    (data / "law" / "a.txt").write_bytes(b"first\r\n\r\nsecond")
    (data / "b.jsonl").write_text(lines({"text": "from a line"}, {"text": "first\r\n\r\nsecond"}))
    return data


def test_documents_of_a_mixture_and_what_the_span_says_of_them(
    mixed: Path, ingest: Ingest, documents: Documents
) -> None:
    report = ingest()
    span = mixed.parent / "corpus" / "span-1"
    ids = [
        f"data/b.jsonl#line{number}-{hashlib.sha256(text).hexdigest()[:8]}"
        for number, text in ((1, b"from a line"), (2, b"first\r\n\r\nsecond"))
    ]
    assert documents(report) == [(ids[0], b"from a line", "data"), (ids[1], b"first\r\n\r\nsecond", "data")]
    assert (report.span_folder, report.unchanged) == (str(span), False)
    assert (report.num_documents, report.num_bytes, report.num_files) == (2, 26, 2)
    assert (report.num_duplicates, report.duplicate_examples) == (1, [f"data/law/a.txt = {ids[1]}"])
    assert (report.bad, report.bytes_by_source, report.num_near_duplicates) == ({}, {"data": 26}, None)
    manifest = json.loads((span / "ingest.json").read_text())
    (shard,) = manifest["shards"]
    assert shard["sha256"] == hashlib.sha256((span / shard["name"]).read_bytes()).hexdigest()
    assert [json.loads(line)["name"] for line in (span / "inputs.jsonl").read_text().splitlines()] == [
        "data/b.jsonl",
        "data/law/a.txt",
    ]
    assert sorted(os.listdir(span)) == ["documents-00000-of-00001.tfrecord", "ingest.json", "inputs.jsonl"]
    assert sorted(os.listdir(span.parent)) == [".ingest.lock", "span-1"]


def test_bytes_written_are_pinned(data: Path, ingest: Ingest) -> None:
    """When this fails, spans that exist no longer are what an ingest would write: raise manifest.OUTPUT_VERSION."""
    (data / "a.txt").write_text("one two three four five\n\nsix seven\n")
    (data / "b.jsonl").write_text(lines({"text": "x", "id": "1"}))
    report = ingest(id_field="id", max_document_bytes=26)
    content = (Path(report.span_folder) / "documents-00000-of-00001.tfrecord").read_bytes()
    expected = b""
    for doc_id, text, source in (
        (b"1", b"x", b"data"),
        (b"data/a.txt#0001", b"one two three four five\n\n", b"data"),
        (b"data/a.txt#0002", b"six seven\n", b"data"),
    ):
        message = _example_class()()
        for name, value in (("doc_id", doc_id), ("source", source), ("text", text)):
            message.features.feature[name].bytes_list.value.append(value)
        expected += frame_one(message.SerializeToString(deterministic=True))
    assert content == expected


def test_duplicates_can_stay(mixed: Path, ingest: Ingest) -> None:
    report = ingest(dedup=False)
    assert (report.num_documents, report.num_duplicates) == (3, 0)


def test_nothing_is_done_when_nothing_changed(mixed: Path, ingest: Ingest) -> None:
    first = ingest()
    before = tree(mixed.parent / "corpus")
    for path in mixed.rglob("*.*"):
        os.utime(path)  # Touched, not changed.
    second = ingest()
    assert second.unchanged
    assert (second.span_folder, second.num_documents) == (first.span_folder, 2)
    assert ingest(span=1, num_workers=4, on_bad="skip").unchanged
    assert tree(mixed.parent / "corpus") == before


@pytest.mark.parametrize(
    "change",
    [
        lambda data: (data / "law" / "a.txt").write_bytes(b"first\r\n\r\nsecone"),
        lambda data: (data / "c.txt").write_text("new"),
        lambda data: (data / "law" / "a.txt").unlink(),
        lambda data: (data / "law").rename(data / "laws"),
    ],
    ids=["content", "added", "removed", "renamed"],
)
def test_a_changed_input_is_a_new_span(mixed: Path, ingest: Ingest, change: Callable[[Path], Any]) -> None:
    ingest()
    before = tree(mixed.parent / "corpus" / "span-1")
    change(mixed)
    report = ingest()
    assert (report.span_folder, report.unchanged) == (str(mixed.parent / "corpus" / "span-2"), False)
    assert tree(mixed.parent / "corpus" / "span-1") == before


def test_other_settings_are_a_new_span(mixed: Path, ingest: Ingest) -> None:
    ingest()
    assert ingest(max_document_bytes=16).span_folder.endswith("span-2")
    assert ingest().span_folder.endswith("span-3")


def test_a_span_never_changes(mixed: Path, ingest: Ingest) -> None:
    assert ingest(span=7).span_folder.endswith("span-7")
    with pytest.raises(ConfigError, match=r"span-7 holds other documents.*Received: span=7"):
        ingest(span=7, dedup=False)
    assert ingest(dedup=False).span_folder.endswith("span-8")


@pytest.mark.parametrize("damage", ["ingest.json", "inputs.jsonl", "documents-00000-of-00001.tfrecord"])
def test_a_damaged_span_is_not_taken_for_whole(mixed: Path, ingest: Ingest, damage: str) -> None:
    path = Path(ingest().span_folder) / damage
    path.write_bytes(path.read_bytes()[:-10])
    assert ingest().span_folder.endswith("span-2")


def test_large_inputs_go_by_size_and_time(mixed: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    def age(seconds: int) -> None:
        for path in mixed.rglob("*.*"):
            os.utime(path, (seconds, seconds))

    monkeypatch.setattr("ingest.manifest._ALWAYS_HASHED_BYTES", 0)
    age(1_000_000_000)
    ingest()
    hashed: list[str] = []
    monkeypatch.setattr("ingest.manifest._sha256", lambda path: hashed.append(path) or "")
    assert ingest().unchanged
    assert hashed == []
    age(1_000_000_001)  # Then the content decides, and the first that differs is enough.
    assert not ingest().unchanged
    assert hashed[:1] == [str(mixed / "b.jsonl")]


@pytest.mark.parametrize(
    ("always_hashed_bytes", "mtime_s"),
    [
        pytest.param(256 << 20, 1_000_000_000, id="small inputs are hashed"),
        pytest.param(0, None, id="files written just before they were read are hashed"),
    ],
)
def test_a_change_that_size_and_time_hide(
    data: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch, always_hashed_bytes: int, mtime_s: int | None
) -> None:
    monkeypatch.setattr("ingest.manifest._ALWAYS_HASHED_BYTES", always_hashed_bytes)
    path = data / "a.txt"
    path.write_text("before")
    mtime_ns = path.stat().st_mtime_ns if mtime_s is None else mtime_s * 1_000_000_000
    os.utime(path, ns=(mtime_ns, mtime_ns))
    ingest()
    path.write_text("after!")
    os.utime(path, ns=(mtime_ns, mtime_ns))
    assert ingest().span_folder.endswith("span-2")


@pytest.fixture
def flawed(data: Path) -> Path:
    (data / "a.jsonl").write_bytes(b'{"text": "good"}\n{"text"\n{"text": ""}\n')
    (data / "b.txt").write_bytes(b"\xff\xfe")
    return data


def test_bad_input_fails_by_default_and_leaves_nothing(flawed: Path, ingest: Ingest) -> None:
    with pytest.raises(CorpusError) as caught:
        ingest()
    first, *named, remedy = str(caught.value).splitlines()
    assert first == "3 bad in the input: 1 empty text, 1 invalid UTF-8, 1 unreadable JSON"
    assert [line.split(": ")[0].strip() for line in named] == [
        f"{flawed}/a.jsonl, line 2",
        f"{flawed}/a.jsonl, line 3",
        f"{flawed}/b.txt, line 1, byte 1 of it",
    ]
    assert "--on-bad skip" in remedy
    assert os.listdir(flawed.parent / "corpus") == [".ingest.lock"]


def test_bad_input_can_be_skipped_but_not_silently(flawed: Path, ingest: Ingest, documents: Documents) -> None:
    report = ingest(flawed, flawed / "gone", on_bad="skip")
    assert [text for _, text, _ in documents(report)] == [b"good"]
    assert report.bad == {"empty text": 1, "invalid UTF-8": 1, "nothing matched": 1, "unreadable JSON": 1}
    assert report.bad_examples[0] == f"{flawed}/gone: nothing matched (no such file or folder)"
    assert len(report.bad_examples) == report.num_bad == 4
    assert not (Path(report.span_folder) / "quarantine").exists()
    again = ingest(flawed, flawed / "gone", on_bad="skip")
    assert (again.unchanged, again.bad) == (True, report.bad)


def test_bad_input_can_be_kept_apart(flawed: Path, ingest: Ingest) -> None:
    report = ingest(flawed, flawed / "gone", on_bad="quarantine")
    folder = Path(report.span_folder) / "quarantine"
    assert sorted(os.listdir(folder)) == ["inputs.jsonl", "records-000000.jsonl"]
    kept = [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
    assert [(item["reason"], item.get("content"), item.get("content_base64")) for item in kept] == [
        ("nothing matched", None, None),
        ("unreadable JSON", '{"text"\n', None),
        ("empty text", None, None),
        ("invalid UTF-8", None, "//4="),
    ]
    assert kept[1]["where"] == f"{flawed}/a.jsonl, line 2"


def test_ids_must_be_unique(data: Path, ingest: Ingest, documents: Documents) -> None:
    (data / "a.jsonl").write_text(lines({"text": "one", "id": 1}, {"text": "two", "id": 1}))
    with pytest.raises(CorpusError, match=r"'1': .*a\.jsonl, line 1 and .*a\.jsonl, line 2"):
        ingest(id_field="id")
    (data / "a.jsonl").write_text(lines({"text": "one", "id": 1}, {"text": "one", "id": 1}))
    assert documents(ingest(id_field="id")) == [("1", b"one", "data")]


@pytest.mark.parametrize("on_bad", ["fail", "skip"])
def test_no_document_at_all_is_an_error(data: Path, ingest: Ingest, on_bad: str) -> None:
    (data / "__init__.py").touch()
    (data / "picture.png").touch()
    with pytest.raises(CorpusError, match=r"no document in the input \(1 files, 0 bytes; .* 1 \.png\)"):
        ingest(on_bad=on_bad)


def test_a_missing_input_is_an_error_before_anything_is_read(data: Path, ingest: Ingest) -> None:
    with pytest.raises(CorpusError, match=r"gone: nothing matched"):
        ingest(data / "gone")
    with pytest.raises(CorpusError, match=r"no document in the input"):
        ingest(data / "gone", on_bad="skip")


def test_a_missing_input_is_not_hidden_by_a_span_of_the_others(mixed: Path, ingest: Ingest) -> None:
    assert ingest().bad == {}
    missing = str(mixed / "missing.txt")
    with pytest.raises(CorpusError, match=r"missing\.txt: nothing matched"):
        ingest(mixed, missing)
    skipped = ingest(mixed, missing, on_bad="skip")
    assert (skipped.unchanged, skipped.bad) == (False, {"nothing matched": 1})
    again = ingest(mixed, missing, on_bad="skip")
    assert (again.span_folder, again.unchanged, again.bad) == (skipped.span_folder, True, {"nothing matched": 1})
    other = ingest(mixed, f"{mixed}/other.txt", on_bad="skip")
    assert (other.unchanged, len(other.bad_examples), "other.txt" in other.bad_examples[0]) == (False, 1, True)


def test_a_corpus_folder_that_cannot_be_listed(mixed: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(out: Path) -> dict[int, Path]:
        raise PermissionError(13, "Permission denied", str(out))

    monkeypatch.setattr("ingest.run.spans", refuse)
    with pytest.raises(HostError, match=r"cannot write to .*corpus \(\[Errno 13\] Permission denied"):
        ingest()


def test_progress_reaches_the_end(mixed: Path, ingest: Ingest) -> None:
    seen: list[Progress] = []
    ingest(on_progress=seen.append)
    assert seen[-1] == Progress("write", 71, 71)
    assert [item.done_bytes for item in seen] == sorted(item.done_bytes for item in seen)


def test_an_exception_of_the_callback_ends_the_ingest(mixed: Path, ingest: Ingest) -> None:
    def fail(progress: Progress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ingest(on_progress=fail)
    assert os.listdir(mixed.parent / "corpus") == [".ingest.lock"]


def test_a_full_disk_is_the_hosts_fault_and_leaves_nothing(data: Path, ingest: Ingest) -> None:
    """A limit on the size of files stands for the full disk: the write fails in the same way, midway."""
    (data / "a.txt").write_bytes(b"x" * 900_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limits[1]))
    try:
        with pytest.raises(HostError, match=r"cannot write documents .*free or enlarge the disk"):
            ingest()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(data.parent / "corpus") == [".ingest.lock"]
    assert ingest().num_documents == 1


def test_an_out_that_cannot_be_a_folder(mixed: Path, ingest: Ingest) -> None:
    (mixed.parent / "corpus").touch()
    with pytest.raises(HostError, match=r"cannot write to .*corpus"):
        ingest()


def test_near_duplicates_are_reported_and_stay(data: Path, ingest: Ingest) -> None:
    words = [f"w{number}" for number in range(200)]
    for name, text in (("a", words), ("b", [*words, "more"]), ("c", words[::-1])):
        (data / f"{name}.txt").write_text(" ".join(text))
    report = ingest(near_duplicates=True)
    assert (report.num_documents, report.num_near_duplicates) == (3, 1)
    assert report.near_duplicate_examples[0].startswith("data/b.txt ~ data/a.txt (")


def test_shards_are_the_same_wherever_the_input_lies(mixed: Path, ingest: Ingest) -> None:
    first = Path(ingest().span_folder)
    mixed.parent.joinpath("elsewhere").mkdir()
    moved = mixed.rename(mixed.parent / "elsewhere" / "data")
    assert ingest(moved).unchanged
    third = Path(ingest(moved, out=str(mixed.parent / "other")).span_folder)
    name = "documents-00000-of-00001.tfrecord"
    assert (third / name).read_bytes() == (first / name).read_bytes()


def test_the_standard_library(ingest: Ingest, documents: Documents) -> None:
    report = ingest(stdlib=True)
    found = {doc_id: (text, source) for doc_id, text, source in documents(report)}
    assert len(found) == report.num_documents > 400
    assert sum(len(text) for text, _ in found.values()) == report.num_bytes > 8_000_000
    assert found["stdlib/json/decoder.py"] == (Path(json.decoder.__file__).read_bytes(), "json")
    assert not [doc_id for doc_id in found if "/test/" in doc_id or "/tests/" in doc_id]
    assert report.bad == {}
    assert ingest(stdlib=True).unchanged


@pytest.mark.slow
def test_worker_processes_write_the_same_bytes(data: Path, tmp_path: Path) -> None:
    for number in range(8):
        (data / f"{number}.jsonl").write_text(lines(*({"text": f"text {number} {line}"} for line in range(500))))
    spans = []
    for num_workers in (1, 2):
        out = str(tmp_path / f"corpus{num_workers}")
        options = IngestOptions(out=out, inputs=[str(data)], num_workers=num_workers, shard_bytes=50_000)
        spans.append(Path(run_ingest(options).span_folder))
    names = [sorted(path.name for path in span.glob("documents-*")) for span in spans]
    assert names[0] == names[1]
    assert len(names[0]) > 5
    assert [(spans[0] / name).read_bytes() for name in names[0]] == [
        (spans[1] / name).read_bytes() for name in names[1]
    ]
