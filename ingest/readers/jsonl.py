"""JSON lines: one object a line. Lines of white space only are no records."""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from ingest.bad import BAD_JSON, DAMAGED_COMPRESSION, EMPTY, INVALID_UTF8, TOO_LARGE, Bad
from ingest.documents import Document, TextRules, utf8_fault
from ingest.inputs import InputFile
from ingest.readers.records import Fields, Place, record_documents
from ingest.readers.streams import DamagedStreamError

MAX_LINE_BYTES = 256 << 20
"""Longest line: it is parsed whole. A longer one is a file without line ends, or no JSON lines at all."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_jsonl(stream: BinaryIO, file: InputFile, fields: Fields, rules: TextRules) -> Iterator[Document | Bad]:
    """The documents of a JSON lines file. Of a damaged compressed one, those before the damage."""
    number = 0
    num_records = 0
    try:
        while line := stream.readline(MAX_LINE_BYTES):
            number += 1
            place = Place(file, "line", number)
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                num_records += 1
                yield Bad(TOO_LARGE, str(place), f"more than {MAX_LINE_BYTES} bytes; are the records one a line?")
                _skip_line(stream)
                continue
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if line.isspace():
                continue
            num_records += 1
            record = _parse(line, place)
            if isinstance(record, Bad):
                yield record
            else:
                yield from record_documents(record, place, fields, rules, content=line)
        if num_records == 0:
            yield Bad(EMPTY, file.path, "no record in it")
    except DamagedStreamError as error:
        yield Bad(DAMAGED_COMPRESSION, f"{file.path}, line {number + 1}", f"{error}; the rest is left out")


def _parse(line: bytes, place: Place) -> dict[str, Any] | Bad:
    try:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            # Python writes NaN, Infinity and whole numbers of any length, and reads them; orjson does not.
            if (fault := utf8_fault(line)) is not None:
                return Bad(INVALID_UTF8, str(place), f"{fault[1]}, at byte {fault[0] + 1} of the line", line)
            # As text: of bytes, it would guess at UTF-16 and take it.
            record = json.loads(line.decode())
    except ValueError as error:
        return Bad(BAD_JSON, str(place), str(error), line)
    except RecursionError:
        return Bad(BAD_JSON, str(place), "nested too deeply", line)
    if not isinstance(record, dict):
        return Bad(BAD_JSON, str(place), f"not an object but {type(record).__name__}", line)
    return record


def _skip_line(stream: BinaryIO) -> None:
    while rest := stream.readline(1 << 20):
        if rest.endswith(b"\n"):
            return
