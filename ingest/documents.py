"""From a text as it was read to documents: line endings, cutting, ids, and the checks every document passes."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

from ingest.bad import EMPTY, INVALID_UTF8, NUL, Bad
from ingest.cutting import cut


@dataclasses.dataclass(frozen=True)
class Document:
    """What is written: see `foundation/documents.py`."""

    doc_id: str
    text: bytes
    source: str

    where: str
    """File, and line, row or record: named if something turns out to be wrong with the document later."""


@dataclasses.dataclass(frozen=True)
class TextRules:
    """How a text becomes documents."""

    max_document_bytes: int
    line_endings: str


def documents_of(
    blocks: Iterable[bytes], doc_id: str, source: str, where: str, rules: TextRules, *, lines_matter: bool
) -> Iterator[Document | Bad]:
    """The documents of one text.

    Args:
      blocks: the text, in pieces as they were read.
      doc_id: becomes `doc_id#0001`, `doc_id#0002`, ... if the text has to be cut.
      where: file, or file and record.
      lines_matter: the text is a file, so a place in it is named by its line.

    Yields:
      Documents, and in their places the pieces that are none. A text without a byte is Bad once.

    Raises:
      Exception: what `blocks` raises, after every whole piece before it.
    """
    if rules.line_endings == "lf":
        blocks = _with_lf(blocks)
    pieces = cut(blocks, rules.max_document_bytes)
    first = next(pieces, None)
    if first is None:
        yield Bad(EMPTY, where)
        return
    try:
        second = next(pieces, None)
    except Exception:
        # The text breaks off, as that of a damaged file does: `first` is a whole piece of one that went on.
        yield _checked(first, f"{doc_id}#0001", source, where, 1, lines_matter)
        raise
    if second is None:
        yield _checked(first, doc_id, source, where, 1, lines_matter)
        return
    line = 1
    for number, piece in enumerate(itertools.chain((first, second), pieces), start=1):
        yield _checked(piece, f"{doc_id}#{number:04d}", source, where, line, lines_matter)
        line += piece.count(b"\n") if lines_matter else 0


def utf8_fault(text: bytes) -> tuple[int, str] | None:
    """Position and nature of the first byte that is not UTF-8; None if all is well."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return error.start, f"byte 0x{text[error.start]:02x}: {error.reason}"
    return None


def _checked(text: bytes, doc_id: str, source: str, where: str, line: int, lines_matter: bool) -> Document | Bad:
    nul = text.find(b"\0")
    reason, fault = NUL, (nul, "byte 0x00") if nul >= 0 else None
    if not text.isascii() and (invalid := utf8_fault(text)) is not None and (fault is None or invalid[0] < nul):
        reason, fault = INVALID_UTF8, invalid
    if fault is None:
        return Document(doc_id, text, source, f"{where}, line {line}" if lines_matter and line > 1 else where)
    position, detail = fault
    if lines_matter:
        line += text.count(b"\n", 0, position)
        line_start = text.rfind(b"\n", 0, position) + 1
        where = f"{where}, line {line}, byte {position - line_start + 1} of it"
    else:
        detail = f"{detail}, at byte {position + 1} of the text"
    return Bad(reason, where, detail, text)


def _with_lf(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """CRLF becomes LF, also where the two stand in different blocks."""
    held = b""
    for block in blocks:
        joined = held + block
        held = b"\r" if joined.endswith(b"\r") else b""
        yield joined[: len(joined) - len(held)].replace(b"\r\n", b"\n")
    if held:
        yield held
