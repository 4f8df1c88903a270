"""What an ingest tells: progress while it works, a report at the end."""

import dataclasses

MAX_EXAMPLES = 20
"""Offenders, duplicates and the like that a report names; counts are always complete."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far an ingest is."""

    phase: str
    """`read`, then `write`."""

    done_bytes: int
    """Bytes of the input files (compressed, where they are) that have been read."""

    total_bytes: int
    """Size of all input files."""


@dataclasses.dataclass(frozen=True)
class IngestReport:
    """What was taken, what was not and why."""

    span_folder: str
    """`OUT/span-N`, complete."""

    unchanged: bool
    """The span was there already and nothing was done; the numbers are those of the ingest that made it."""

    num_documents: int
    num_bytes: int
    """UTF-8 bytes of the documents' texts."""

    num_files: int
    num_input_bytes: int
    """Size of the input files as they lie on the disk."""

    num_shards: int
    num_duplicates: int
    """Documents left out as exact copies."""

    duplicate_examples: list[str]
    """`copy = original`, the first few."""

    bad: dict[str, int]
    """Inputs and records not taken, by reason."""

    bad_examples: list[str]
    """The first few, in the order of the input: file, line or record, reason, value."""

    num_empty_code_files: int
    """Source files of zero bytes, which every Python package has: no documents, and nothing wrong."""

    num_ignored_files: dict[str, int]
    """Files in folders and globs that no reader is for, by ending; and what is `hidden`."""

    num_near_duplicates: int | None
    """Documents that are nearly the same as an earlier one; None if not looked for."""

    near_duplicate_examples: list[str]
    bytes_by_source: dict[str, int]
    seconds: float

    @property
    def num_bad(self) -> int:
        return sum(self.bad.values())

    @property
    def megabytes_per_s(self) -> float:
        """Megabytes (10^6) of text per second, start-up of Beam included."""
        return self.num_bytes / 1e6 / max(self.seconds, 1e-9)
