"""Input that cannot be a document: what it was, where, why; counted, named, kept if asked."""

import base64
import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from foundation.errors import CorpusError
from ingest.report import MAX_EXAMPLES

QUARANTINE_FOLDER = "quarantine"
_MAX_SHOWN = 5
_MAX_KEPT_BYTES = 1 << 20
"""Bytes of a bad record that quarantine keeps: enough to see and mend it, whatever its size."""

EMPTY = "empty text"
INVALID_UTF8 = "invalid UTF-8"
NUL = "NUL character"
BAD_JSON = "unreadable JSON"
MISSING_FIELD = "missing field"
WRONG_TYPE = "field of another type"
TOO_LARGE = "record too large"
DAMAGED_COMPRESSION = "truncated or damaged compressed file"
DAMAGED_PARQUET = "truncated or damaged Parquet file"
DAMAGED_RECORD = "truncated or damaged TFRecord"
NOT_AN_EXAMPLE = "record that is no tf.Example"
UNREADABLE = "unreadable file"
CHANGED = "file changed while it was read"
BAD_NAME = "file name that is not UTF-8"
NOTHING_MATCHED = "nothing matched"
GIVEN_TWICE = "file given twice"


@dataclasses.dataclass(frozen=True)
class Bad:
    """One input, file or record that was not taken."""

    reason: str
    """One of the names above: what is counted together."""

    where: str
    """File, and line, row or record."""

    detail: str = ""
    """The value received, or the cause; one line."""

    content: bytes | None = dataclasses.field(default=None, repr=False)
    """What was read, for quarantine; None where there is nothing to keep (a damaged file stays where it is)."""

    def __str__(self) -> str:
        return f"{self.where}: {self.reason} ({self.detail})" if self.detail else f"{self.where}: {self.reason}"

    def to_json(self) -> str:
        """One line of a quarantine file."""
        fields: dict[str, Any] = {"reason": self.reason, "where": self.where, "detail": self.detail}
        if self.content is not None:
            kept = self.content[:_MAX_KEPT_BYTES]
            fields["content_bytes"] = len(self.content)
            try:
                fields["content"] = kept.decode()
            except UnicodeDecodeError:
                fields["content_base64"] = base64.b64encode(kept).decode()
        # Names from the file system may hold lone surrogates: escaped, they are valid JSON and valid UTF-8.
        return json.dumps(fields, ensure_ascii=True)


@dataclasses.dataclass
class BadCount:
    """Bad input of a work item, or of all: complete counts, the first few by name."""

    by_reason: dict[str, int] = dataclasses.field(default_factory=dict)
    first: list[str] = dataclasses.field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.by_reason.values())

    def add(self, bad: Bad) -> None:
        self.by_reason[bad.reason] = self.by_reason.get(bad.reason, 0) + 1
        if len(self.first) < MAX_EXAMPLES:
            self.first.append(_printable(str(bad)))

    def merge(self, others: Iterable["BadCount"]) -> "BadCount":
        """Self and `others`, in that order."""
        merged = BadCount(dict(self.by_reason), list(self.first))
        for other in others:
            for reason, count in other.by_reason.items():
                merged.by_reason[reason] = merged.by_reason.get(reason, 0) + count
            merged.first += other.first[: MAX_EXAMPLES - len(merged.first)]
        merged.by_reason = dict(sorted(merged.by_reason.items()))
        return merged

    def error(self) -> CorpusError:
        """The error that names them."""
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.by_reason.items()))
        lines = [f"{self.total:,} bad in the input: {reasons}", *(f"  {line}" for line in self.first[:_MAX_SHOWN])]
        if self.total > _MAX_SHOWN:
            lines.append(f"  and {self.total - min(_MAX_SHOWN, len(self.first)):,} more")
        lines.append(
            "nothing was written; mend the input, or leave these out with --on-bad skip or --on-bad quarantine"
        )
        return CorpusError("\n".join(lines))


@contextlib.contextmanager
def write_quarantine(path: Path) -> Iterator[Callable[[Bad], None]]:
    """A function that keeps a record in the JSON lines file at `path`; without a record there is no file."""
    with contextlib.ExitStack() as stack:
        file: TextIO | None = None

        def keep(bad: Bad) -> None:
            nonlocal file
            if file is None:
                file = stack.enter_context(path.open("w", encoding="utf-8"))
            file.write(bad.to_json() + "\n")

        yield keep


def _printable(text: str) -> str:
    """One line that any terminal and any JSON file can hold."""
    shown = text.encode("utf-8", "backslashreplace").decode()
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in shown)
