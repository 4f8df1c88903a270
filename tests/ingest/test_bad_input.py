"""Each kind of bad input is named by file and line, row or record, and costs nothing but itself."""

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

from foundation.tfrecord import frame_one
from ingest import reading
from ingest.bad import Bad, BadCount
from ingest.documents import Document
from ingest.examples import encode
from ingest.readers import jsonl

Read = Callable[..., list[Document | Bad]]


def example(text: bytes) -> bytes:
    return encode(Document("id", text, "source", ""))


def outcome(items: list[Document | Bad], path: Path) -> list[str]:
    """Texts of documents; what is said of the bad, the path shortened."""
    return [
        item.text.decode() if isinstance(item, Document) else str(item).replace(str(path), path.name) for item in items
    ]


def of(read: Read, path: Path, content: bytes, **options: Any) -> list[str]:
    path.write_bytes(content)
    return outcome(read(path, **options), path)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"text": "b"', "f.jsonl, line 2: unreadable JSON ("),
        (b'["b"]', "f.jsonl, line 2: unreadable JSON (not an object but list)"),
        (b"[" * 100_000, "f.jsonl, line 2: unreadable JSON (nested too deeply)"),
        (
            b'{"text": "b\xff"}',
            "f.jsonl, line 2: invalid UTF-8 (byte 0xff: invalid start byte, at byte 12 of the line)",
        ),
        (
            b'{"text": "\\ud800"}',
            "f.jsonl, line 2: invalid UTF-8 (field 'text', character 1: lone surrogate '\\ud800')",
        ),
        (b'{"text": "a\\u0000b"}', "f.jsonl, line 2: NUL character (byte 0x00, at byte 2 of the text)"),
        (b'{"text": ""}', "f.jsonl, line 2: empty text"),
        (b'{"body": "b"}', "f.jsonl, line 2: missing field (no value in field 'text'; the record has body)"),
        (b'{"text": null}', "f.jsonl, line 2: missing field (no value in field 'text'; the record has text)"),
        (b'{"text": 5}', "f.jsonl, line 2: field of another type (field 'text' must be text and is int 5)"),
    ],
)
def test_json_lines(data: Path, read: Read, line: bytes, expected: str) -> None:
    before, bad, after = of(read, data / "f.jsonl", b'{"text": "a"}\n' + line + b'\n{"text": "c"}\n')
    assert (before, after) == ("a", "c")
    assert bad.startswith(expected)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (b'{"text": "b"}', "f.jsonl, line 1: missing field (no value in field 'id'; the record has text)"),
        (b'{"text": "b", "id": ""}', "f.jsonl, line 1: missing field (field 'id' is empty)"),
        (b'{"text": "b", "id": true}', "f.jsonl, line 1: field of another type (field 'id' must be text and is bool"),
        (b'{"text": "b", "id": "a\\u0000"}', "f.jsonl, line 1: NUL character (field 'id' is b'a\\x00')"),
    ],
)
def test_ids(data: Path, read: Read, record: bytes, expected: str) -> None:
    (bad,) = of(read, data / "f.jsonl", record, id_field="id")
    assert bad.startswith(expected)


def test_a_line_too_long_to_be_one(data: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 20)
    found = of(read, data / "f.jsonl", b'{"text": "a"}\n{"text": "' + b"b" * 50 + b'"}\n{"text": "c"}\n')
    assert found == ["a", "f.jsonl, line 2: record too large (more than 20 bytes; are the records one a line?)", "c"]


@pytest.mark.parametrize(
    ("name", "compress", "damage"),
    [
        ("f.jsonl.gz", gzip.compress, "Compressed file ended before the end-of-stream marker was reached"),
        ("f.jsonl.zst", zstandard.compress, "the file ends inside a Zstandard frame"),
    ],
)
def test_truncated_compressed_lines(
    data: Path, read: Read, name: str, compress: Callable[[bytes], bytes], damage: str
) -> None:
    lines = b"".join(b'{"text": "%s"}\n' % os.urandom(4000).hex().encode() for _ in range(200))
    packed = compress(lines)
    *good, bad = of(read, data / name, packed[: len(packed) // 2])
    assert 0 < len(good) < 200
    assert bad == f"{name}, line {len(good) + 1}: truncated or damaged compressed file ({damage}; the rest is left out)"


@pytest.mark.parametrize(("name", "compress"), [("f.txt.gz", gzip.compress), ("f.txt.zst", zstandard.compress)])
def test_a_truncated_compressed_text_gives_its_whole_pieces(
    data: Path, read: Read, name: str, compress: Callable[[bytes], bytes]
) -> None:
    text = b"".join(os.urandom(3000).hex().encode() + b"\n\n" for _ in range(200))
    packed = compress(text)
    *good, bad = of(read, data / name, packed[: len(packed) // 2], max_document_bytes=10_000)
    assert "".join(good).encode() == text[: len("".join(good))]
    assert bad.startswith(f"{name}: truncated or damaged compressed file (")


def test_a_text_damaged_in_its_second_piece_gives_its_first(data: Path, read: Read) -> None:
    text = os.urandom(15_000).hex().encode()
    packed = gzip.compress(text)
    (data / "f.txt.gz").write_bytes(packed[: len(packed) * 2 // 3])
    first, bad = read(data / "f.txt.gz", max_document_bytes=16_000)
    assert isinstance(first, Document)
    assert (first.doc_id, first.text) == ("data/f.txt.gz#0001", text[:16_000])
    assert "what follows the last whole piece is left out" in str(bad)


def test_utf16_is_no_json_even_if_its_characters_are_ascii(data: Path, read: Read) -> None:
    (bad,) = of(read, data / "f.jsonl", '{"text": "a"}'.encode("utf-16-le"))
    assert bad.startswith("f.jsonl, line 1: unreadable JSON")


@pytest.mark.parametrize("name", ["f.txt.gz", "f.jsonl.zst", "f.tfrecord.gz"])
def test_what_is_not_compressed_at_all(data: Path, read: Read, name: str) -> None:
    (bad,) = of(read, data / name, b"plain text, in spite of the name")
    assert bad.startswith(name)
    assert "truncated or damaged compressed file" in bad


def test_trailing_garbage_after_gzip(data: Path, read: Read) -> None:
    *good, bad = of(read, data / "f.jsonl.gz", gzip.compress(b'{"text": "a"}\n') + b"garbage")
    assert good == ["a"]
    assert bad.startswith("f.jsonl.gz, line 2: truncated or damaged compressed file (Not a gzipped file")


def test_a_wrong_checksum_of_a_payload_costs_one_record(data: Path, read: Read) -> None:
    records = [bytearray(frame_one(example(text))) for text in (b"a", b"b", b"c")]
    records[1][20] ^= 1
    found = of(read, data / "f.tfrecord", b"".join(records))
    size = len(records[1]) - 16
    assert found == [
        "a",
        f"f.tfrecord, record 1: truncated or damaged TFRecord (wrong checksum of the payload ({size} bytes); "
        "make the file again)",
        "c",
    ]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda record: record[:5], "the file ends inside a record's header"),
        (lambda record: record[:-3], "the file ends after"),
        (lambda record: bytes([record[0] ^ 1]) + record[1:], "wrong checksum of the length"),
    ],
)
def test_other_damage_to_a_tfrecord_costs_the_rest(
    data: Path, read: Read, damage: Callable[[bytes], bytes], expected: str
) -> None:
    first, second = of(read, data / "f.tfrecord", frame_one(example(b"a")) + damage(frame_one(example(b"b"))))
    assert first == "a"
    assert second.startswith(f"f.tfrecord, record 1: truncated or damaged TFRecord ({expected}")
    assert second.endswith("the rest is left out)")


def test_a_record_that_is_no_example(data: Path, read: Read) -> None:
    bad, good = of(read, data / "f.tfrecord", frame_one(b"\x0a\xff\xff") + frame_one(example(b"a")))
    assert bad.startswith("f.tfrecord, record 0: record that is no tf.Example (")
    assert good == "a"


def test_parquet_cut_short(data: Path, read: Read) -> None:
    parquet.write_table(pa.table({"text": ["a"] * 100}), data / "whole.parquet")
    (bad,) = of(read, data / "f.parquet", (data / "whole.parquet").read_bytes()[:-20])
    assert bad.startswith("f.parquet: truncated or damaged Parquet file (")


def test_a_damaged_row_group_costs_no_other(data: Path, read: Read) -> None:
    path = data / "f.parquet"
    table = pa.table({"text": ["a" * 1000, "b" * 1000, "c" * 1000]})
    parquet.write_table(table, path, row_group_size=1, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    header = parquet.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    content[header : header + 8] = b"\xff" * 8
    first, bad, last = of(read, path, bytes(content))
    assert (first, last) == ("a" * 1000, "c" * 1000)
    assert bad.startswith("f.parquet, row group 1, from row 1: truncated or damaged Parquet file (")


def test_parquet_columns(data: Path, read: Read) -> None:
    path = data / "f.parquet"
    parquet.write_table(pa.table({"body": ["a"]}), path)
    assert outcome(read(path), path) == ["f.parquet: missing field (no column 'text'; the file has body)"]
    parquet.write_table(pa.table({"text": [["a"]]}), path)
    (bad,) = outcome(read(path), path)
    assert bad == "f.parquet, row 0: field of another type (field 'text' must be text and is list ['a'])"
    parquet.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), path)
    assert outcome(read(path), path) == ["f.parquet: field of another type (2 columns are named 'text')"]
    parquet.write_table(pa.table({"text": ["a", None]}), path)
    missing = "f.parquet, row 1: missing field (no value in field 'text'; the record has text)"
    assert outcome(read(path), path) == ["a", missing]


@pytest.mark.parametrize("name", ["f.txt", "f.jsonl", "f.tfrecord", "f.txt.gz"])
def test_a_file_without_a_byte(data: Path, read: Read, name: str) -> None:
    (bad,) = of(read, data / name, gzip.compress(b"") if name.endswith(".gz") else b"")
    assert bad.startswith(f"{name}: empty text")


def test_a_file_that_changes_while_it_is_read(data: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    path = data / "f.txt"

    def read_and_grow(*args: Any) -> Iterator[Document | Bad]:
        yield from original(*args)
        with path.open("ab") as file:
            file.write(b"more")

    original = reading._READERS["text"]
    monkeypatch.setitem(reading._READERS, "text", read_and_grow)
    found = of(read, path, b"text")
    assert found == [
        "text",
        "f.txt: file changed while it was read "
        "(size 4, then 8; if skipped, what was read of it stays in; ingest it when it is at rest)",
    ]


def test_a_file_that_is_gone_when_it_is_read(data: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    path = data / "f.txt"

    def gone(*args: Any) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(reading, "CountedFile", gone)
    assert of(read, path, b"text") == ["f.txt: unreadable file (No such file or directory)"]


def test_an_error_counts_all_names_some_and_says_what_to_do() -> None:
    count = BadCount()
    for line in range(30):
        count.add(Bad("empty text", f"f.jsonl, line {line}"))
    count = count.merge([BadCount({"NUL character": 2}, ["g.txt, line 1", "g.txt, line 2"])])
    assert len(count.first) == 20
    assert str(count.error()).splitlines() == [
        "32 bad in the input: 2 NUL character, 30 empty text",
        *(f"  f.jsonl, line {line}: empty text" for line in range(5)),
        "  and 27 more",
        "nothing was written; mend the input, or leave these out with --on-bad skip or --on-bad quarantine",
    ]


def test_names_are_printable_whatever_they_are() -> None:
    count = BadCount()
    count.add(Bad("empty text", "a\nb\x1b[31m\udcff.txt"))
    assert count.first == ["a\\nb\\x1b[31m\\udcff.txt: empty text"]
