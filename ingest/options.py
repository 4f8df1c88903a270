"""What a person can say about an ingest."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from foundation.errors import ConfigError

ON_BAD = ("fail", "skip", "quarantine")
LINE_ENDINGS = ("keep", "lf")

# fmt: off
SOURCE_CODE_EXTENSIONS = (
    ".py", ".pyi", ".pyx", ".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".cu", ".cuh", ".rs", ".go", ".java",
    ".kt", ".scala", ".js", ".mjs", ".jsx", ".ts", ".tsx", ".rb", ".php", ".cs", ".swift", ".m", ".mm", ".pl", ".lua",
    ".r", ".jl", ".hs", ".ml", ".ex", ".exs", ".erl", ".clj", ".sh", ".bash", ".sql", ".proto", ".html", ".css",
    ".scss", ".rst", ".tex", ".toml", ".yaml", ".yml", ".cmake",
)
# fmt: on
"""Files with these endings are taken from folders as source code, one file one document."""

_LEAST_DOCUMENT_BYTES = 16
"""A piece must have room for a character (4 bytes), and for a sensible cut."""


@dataclasses.dataclass(frozen=True)
class IngestOptions:
    """One ingest. Everything that decides the bytes written is in `settings()`.

    Raises:
      ConfigError: a value out of its bounds, on construction.
    """

    out: str
    """Corpus folder; receives `span-N/`."""

    inputs: Sequence[str] = ()
    """Files, folders (read recursively) and globs (`**` for any depth). Of exact copies the first in order stays."""

    span: int | None = None
    """Number of the span. None: the newest if it holds these very documents already, else the next free one."""

    stdlib: bool = False
    """Take the running interpreter's own standard library too: its .py files without its tests."""

    source: str | None = None
    """Source of all documents. None: `source_field`, else the first folder below the input, else the input's folder."""

    text_field: str = "text"
    """Field (column, feature) of the text in JSON lines, Parquet and tf.Examples."""

    id_field: str | None = None
    """Field of the document's id. None: file, line or record number and a hash of the text."""

    source_field: str | None = None
    """Field of the document's source."""

    extensions: Sequence[str] = SOURCE_CODE_EXTENSIONS
    """Endings of files that are read as source code, beside the formats: the last one of a name, such as `.py`."""

    max_document_bytes: int = 1_000_000
    """Longer texts are cut: at a paragraph, else a line, else a space, else between characters."""

    shard_bytes: int = 64 << 20
    """Size of a shard, about. A shard is sorted in memory."""

    on_bad: str = "fail"
    """fail: nothing is written, the error names what is bad; skip: left out, counted, named; quarantine: also kept."""

    dedup: bool = True
    """Leave out documents whose text is byte for byte that of an earlier one."""

    near_duplicates: bool = False
    """Report (not remove) documents that are nearly the same, by MinHash."""

    near_duplicate_similarity: float = 0.8
    """Jaccard similarity of word 5-grams from which two documents are near duplicates."""

    line_endings: str = "keep"
    """keep: bytes stay as they are, CRLF included; lf: CRLF becomes LF (a lone CR stays)."""

    num_workers: int = 1
    """Processes of Beam's local runner. A file is read by one; more pay off from a few hundred MB in several files."""

    beam_args: Sequence[str] = ()
    """Beam's own flags, for a runner on a cluster; all workers must see `out` and the inputs under the same paths."""

    def __post_init__(self) -> None:
        if isinstance(self.inputs, str) or isinstance(self.extensions, str):
            raise ConfigError(f"inputs and extensions are sequences of strings. Received: inputs={self.inputs!r}")
        object.__setattr__(self, "inputs", tuple(os.fspath(place) for place in self.inputs))
        object.__setattr__(self, "beam_args", tuple(self.beam_args))
        object.__setattr__(self, "out", os.fspath(self.out))
        object.__setattr__(self, "extensions", tuple(_with_dot(ending) for ending in self.extensions))
        if not self.inputs and not self.stdlib:
            raise ConfigError("nothing to ingest; give files, folders or globs, or stdlib. Received: inputs=()")
        for name, value, choices in (
            ("on_bad", self.on_bad, ON_BAD),
            ("line_endings", self.line_endings, LINE_ENDINGS),
        ):
            if value not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(choices)}. Received: {name}={value!r}")
        for name, number, least in (
            ("span", self.span, 0),
            ("max_document_bytes", self.max_document_bytes, _LEAST_DOCUMENT_BYTES),
            ("shard_bytes", self.shard_bytes, 1),
            ("num_workers", self.num_workers, 1),
        ):
            if number is not None and number < least:
                raise ConfigError(f"{name} must be at least {least}. Received: {name}={number}")
        if not 0 < self.near_duplicate_similarity <= 1:
            raise ConfigError(
                f"near_duplicate_similarity must be above 0 and at most 1. "
                f"Received: near_duplicate_similarity={self.near_duplicate_similarity}"
            )
        if self.source is not None and not _is_plain_text(self.source):
            raise ConfigError(f"source must be UTF-8 text without NUL. Received: source={self.source!r}")
        for ending in self.extensions:
            if not _is_ending(ending):
                raise ConfigError(
                    "an extension is the last ending of a file's name, without compression, such as .py. "
                    f"Received: extensions={ending!r}"
                )
        if self.source is not None and self.source_field is not None:
            raise ConfigError(
                "source and source_field exclude each other; give one. "
                f"Received: source={self.source!r}, source_field={self.source_field!r}"
            )

    def settings(self) -> dict[str, Any]:
        """The options that decide what is written, as JSON can hold them; equal settings and files give equal bytes."""
        fields = dataclasses.asdict(self)
        for name in ("out", "inputs", "span", "stdlib", "num_workers", "beam_args"):
            del fields[name]
        fields["extensions"] = sorted(self.extensions)
        if not self.near_duplicates:
            del fields["near_duplicate_similarity"]
        return fields


def _is_plain_text(text: str) -> bool:
    """Bytes of the command line that are no UTF-8 arrive as lone surrogates."""
    return bool(text) and "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def _is_ending(ending: str) -> bool:
    """Whether a file's name can have it as its last ending; another would match nothing, silently."""
    return os.path.splitext(f"x{ending}") == ("x", ending) and len(ending) > 1 and ending not in (".gz", ".zst")


def _with_dot(ending: str) -> str:
    return ending.lower() if ending.startswith(".") else f".{ending.lower()}"
