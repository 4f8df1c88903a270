"""What JSON lines, Parquet and tf.Examples have in common: a record with fields becomes documents."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from ingest.bad import INVALID_UTF8, MISSING_FIELD, NUL, WRONG_TYPE, Bad
from ingest.documents import Document, TextRules, documents_of, utf8_fault
from ingest.inputs import InputFile
from ingest.options import IngestOptions

_TEXT_HASH_DIGITS = 8
"""Of the text's SHA-256 in a made id: a line number alone would name another text when lines are inserted."""


@dataclasses.dataclass(frozen=True)
class Fields:
    """Which fields of a record are what; the last two may be absent."""

    text: str
    doc_id: str | None
    source: str | None

    @classmethod
    def of(cls, options: IngestOptions) -> "Fields":
        return cls(options.text_field, options.id_field, options.source_field)

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name in (self.text, self.doc_id, self.source) if name is not None))


@dataclasses.dataclass(frozen=True)
class Place:
    """A record of a file."""

    file: InputFile
    unit: str
    """`line`, `row` or `record`."""

    number: int

    def __str__(self) -> str:
        return f"{self.file.path}, {self.unit} {self.number}"


class _FieldError(ValueError):
    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


def record_documents(
    record: Mapping[str, Any], place: Place, fields: Fields, rules: TextRules, content: bytes | None = None
) -> Iterator[Document | Bad]:
    """The documents of one record.

    Args:
      record: values by field: str or bytes, int for an id or a source.
      content: the record as it was read, for quarantine.
    """
    try:
        text = _value(record, fields.text, integers=False)
        doc_id = _name(record, fields.doc_id) if fields.doc_id is not None else None
        source = _name(record, fields.source) if fields.source is not None else place.file.source
    except _FieldError as error:
        yield Bad(error.reason, str(place), str(error), content)
        return
    if doc_id is None:
        digest = hashlib.sha256(text).hexdigest()[:_TEXT_HASH_DIGITS]
        doc_id = f"{place.file.name}#{place.unit}{place.number}-{digest}"
    yield from documents_of((text,), doc_id, source, str(place), rules, lines_matter=False)


def _name(record: Mapping[str, Any], field: str) -> str:
    """An id or a source: text, or a whole number."""
    value = _value(record, field, integers=True)
    if not value:
        raise _FieldError(MISSING_FIELD, f"field {field!r} is empty")
    if b"\0" in value:
        raise _FieldError(NUL, f"field {field!r} is {value[:50]!r}")
    return value.decode()


def _value(record: Mapping[str, Any], field: str, *, integers: bool) -> bytes:
    """The bytes of a field. Not checked for UTF-8 if it is the text: that is done per document, after cutting."""
    value = record.get(field)
    if value is None:
        present = ", ".join(sorted(map(str, record))[:10])
        raise _FieldError(MISSING_FIELD, f"no value in field {field!r}; the record has {present or 'no field'}")
    if integers and isinstance(value, int) and not isinstance(value, bool):
        return str(value).encode()
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise _FieldError(
                INVALID_UTF8, f"field {field!r}, character {error.start + 1}: lone surrogate {value[error.start]!r}"
            ) from error
    if not isinstance(value, bytes):
        raise _FieldError(WRONG_TYPE, f"field {field!r} must be text and is {type(value).__name__} {str(value)[:50]}")
    if integers and (fault := utf8_fault(value)) is not None:
        raise _FieldError(INVALID_UTF8, f"field {field!r}, {fault[1]}, at byte {fault[0] + 1} of it")
    return value
