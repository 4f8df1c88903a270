"""Every format gives the documents that are in it, in order, under ids that stay."""

import gzip
import hashlib
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

from foundation.tfrecord import frame_one
from ingest.bad import Bad
from ingest.documents import Document
from ingest.examples import _example_class
from ingest.readers.streams import CountedFile, blocks_of, decompressed

Read = Callable[..., list[Document | Bad]]

RECORDS: list[dict[str, Any]] = [
    {"text": "one\r\n\t 1", "id": "a/1", "kind": "law", "other": [1, 2]},
    {"text": "한국어 🦜", "id": 17, "kind": "code", "other": None},
]


def as_jsonl(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def as_example(record: dict[str, Any]) -> bytes:
    example = _example_class()()
    for name, value in record.items():
        feature = example.features.feature[name]
        if isinstance(value, int):
            feature.int64_list.value.append(value)
        elif isinstance(value, str):
            feature.bytes_list.value.append(value.encode())
    return example.SerializeToString()


def write_format(folder: Path, ending: str, records: list[dict[str, Any]]) -> Path:
    path = folder / f"f{ending}"
    if ending == ".parquet":
        table = pa.table({"text": [r["text"] for r in records], "id": [str(r["id"]) for r in records]})
        kinds = pa.array([r["kind"] for r in records]).dictionary_encode()
        parquet.write_table(table.append_column("kind", kinds), path, row_group_size=1)
        return path
    if ending.startswith(".jsonl"):
        content = as_jsonl(records)
    else:
        content = b"".join(frame_one(as_example(record)) for record in records)
    if ending.endswith(".gz"):
        # Two members, as `cat a.gz b.gz` makes them.
        content = gzip.compress(content[:10]) + gzip.compress(content[10:])
    if ending.endswith(".zst"):
        content = zstandard.compress(content[:10]) + zstandard.compress(content[10:])
    path.write_bytes(content)
    return path


FORMATS = [".jsonl", ".jsonl.gz", ".jsonl.zst", ".tfrecord", ".tfrecord.gz", ".parquet"]


@pytest.mark.parametrize("ending", FORMATS)
def test_records_with_fields(data: Path, read: Read, ending: str) -> None:
    path = write_format(data, ending, RECORDS)
    found = read(path, id_field="id", source_field="kind")
    unit, first = ("line", 1) if "jsonl" in ending else ("row", 0) if "parquet" in ending else ("record", 0)
    assert found == [
        Document("a/1", b"one\r\n\t 1", "law", f"{path}, {unit} {first}"),
        Document("17", "한국어 🦜".encode(), "code", f"{path}, {unit} {first + 1}"),
    ]


@pytest.mark.parametrize("ending", FORMATS)
def test_records_without_ids_get_place_and_hash(data: Path, read: Read, ending: str) -> None:
    path = write_format(data, ending, RECORDS)
    unit, first = ("line", 1) if "jsonl" in ending else ("row", 0) if "parquet" in ending else ("record", 0)
    hashes = [hashlib.sha256(record["text"].encode()).hexdigest()[:8] for record in RECORDS]
    documents = [item for item in read(path) if isinstance(item, Document)]
    assert [document.doc_id for document in documents] == [
        f"data/f{ending}#{unit}{first}-{hashes[0]}",
        f"data/f{ending}#{unit}{first + 1}-{hashes[1]}",
    ]
    assert {document.source for document in documents} == {"data"}


@pytest.mark.parametrize("ending", [".txt", ".md", ".txt.gz", ".md.zst", ".py"])
def test_a_text_file_is_one_document(data: Path, read: Read, ending: str) -> None:
    text = "def f():\r\n\tpass  # 🦜\n".encode()
    path = data / f"f{ending}"
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(text))
    assert read(path) == [Document(f"data/f{ending}", text, "data", str(path))]


@pytest.mark.parametrize("ending", [".jsonl", ".tfrecord", ".parquet"])
def test_a_long_record_is_cut(data: Path, read: Read, ending: str) -> None:
    path = write_format(data, ending, [{"text": "one two three\nfour five six", "id": "x", "kind": "k"}])
    documents = read(path, id_field="id", max_document_bytes=16)
    assert [(document.doc_id, document.text) for document in documents if isinstance(document, Document)] == [
        ("x#0001", b"one two three\n"),
        ("x#0002", b"four five six"),
    ]


def test_json_lines_as_python_writes_them(data: Path, read: Read) -> None:
    path = data / "f.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"body": "a", "x": NaN}\r\n   \n{"body": "b\\ud83e\\udd9c", "x": 123456789012345678901234567890}'
    )
    found = read(path, text_field="body")
    assert [(item.text, item.where) for item in found if isinstance(item, Document)] == [
        (b"a", f"{path}, line 1"),
        ("b🦜".encode(), f"{path}, line 3"),
    ]
    assert len(found) == 2


def test_parquet_of_binary_and_large_columns(data: Path, read: Read) -> None:
    table = pa.table({"text": pa.array([b"a"], pa.large_binary()), "kind": pa.array(["k"], pa.large_string())})
    parquet.write_table(table, data / "f.parquet")
    (document,) = read(data / "f.parquet", source_field="kind")
    assert isinstance(document, Document)
    assert (document.text, document.source) == (b"a", "k")


def test_zstd_with_a_window_of_a_gigabyte(data: Path, read: Read) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    (data / "f.txt.zst").write_bytes(compressor.compress(b"text") + compressor.flush())
    assert [item.text for item in read(data / "f.txt.zst") if isinstance(item, Document)] == [b"text"]


def test_zstd_that_grows_enormously_is_not_held_whole(data: Path) -> None:
    path = data / "f.txt.zst"
    path.write_bytes(zstandard.compress(bytes(200_000_000)))
    tracemalloc.start()
    try:
        with CountedFile(str(path), lambda num_bytes: None) as file, decompressed(file, str(path)) as stream:
            total = sum(len(block) for block in blocks_of(stream))
        assert total == 200_000_000
        # What 1 KiB can become, twice: joined from its parts.
        assert tracemalloc.get_traced_memory()[1] < 80_000_000
    finally:
        tracemalloc.stop()


def test_an_empty_source_file_is_no_document_and_nothing_bad(data: Path, read: Read) -> None:
    (data / "__init__.py").touch()
    assert read(data / "__init__.py") == []


@pytest.mark.parametrize("num_bytes", [0, 10, 3_000_000])
def test_a_counted_file_hashes_and_counts_what_it_read(data: Path, num_bytes: int) -> None:
    content = bytes(range(250)) * (num_bytes // 250)
    (data / "f").write_bytes(content)
    counts: list[int] = []
    with CountedFile(str(data / "f"), counts.append) as file:
        assert file.read(7) == content[:7]
        file.drain()
        assert (file.sha256, sum(counts)) == (hashlib.sha256(content).hexdigest(), len(content))
