"""Reading: a task of files becomes runs of documents, and word of what was bad."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path

from ingest.bad import CHANGED, UNREADABLE, Bad, BadCount, write_quarantine
from ingest.documents import Document, TextRules
from ingest.inputs import CODE_KIND, JSONL_KIND, PARQUET_KIND, TEXT_KIND, TFRECORD_KIND, InputFile
from ingest.options import IngestOptions
from ingest.progress import ProgressWriter
from ingest.readers.jsonl import read_jsonl
from ingest.readers.parquet import read_parquet
from ingest.readers.records import Fields
from ingest.readers.streams import CountedFile, decompressed
from ingest.readers.text import read_text
from ingest.readers.tfrecords import read_tfrecord
from ingest.runs import RUN_BYTES, Run, RunWriter

PROGRESS_NAME = "progress"
RUNS_FOLDER = "runs"
_SEQUENCE_BITS = 40
"""A document's place in the input: number of the file, then, in these bits, its number in the file."""


@dataclasses.dataclass(frozen=True)
class ReadOutcome:
    """What a task found."""

    runs: list[Run]
    num_documents: int
    bad: BadCount
    sha256: list[str]
    """Of each file of the task."""

    num_empty_code_files: int


@dataclasses.dataclass(frozen=True)
class ReadTask:
    """Reads some files."""

    number: int
    files: list[InputFile]
    first_file: int
    """Number of `files[0]` among all files."""

    options: IngestOptions
    staging: str

    def run(self) -> ReadOutcome:
        staging = Path(self.staging)
        writer = RunWriter(staging / RUNS_FOLDER)
        quarantine = quarantine_file(staging, self.number) if self.options.on_bad == "quarantine" else None
        bad = BadCount()
        progress = ProgressWriter(staging / PROGRESS_NAME)
        sha256 = []
        num_documents = num_empty = 0
        with contextlib.ExitStack() as stack:
            stack.callback(progress.close)
            keep = stack.enter_context(write_quarantine(quarantine)) if quarantine is not None else _keep_nothing
            for file_number, file in enumerate(self.files, start=self.first_file):
                reading = FileReading(file, self.options, progress.add)
                for number, item in enumerate(reading.read()):
                    if isinstance(item, Bad):
                        bad.add(item)
                        keep(item)
                    else:
                        writer.add(item, file_number << _SEQUENCE_BITS | number)
                        num_documents += 1
                sha256.append(reading.sha256)
                num_empty += reading.is_empty_code
            return ReadOutcome(writer.finish(), num_documents, bad, sha256, num_empty)


def plan_reading(files: list[InputFile], options: IngestOptions, staging: Path) -> list[ReadTask]:
    """Tasks of whole files in order, about a run long, so that small files do not make small runs."""
    total = sum(file.size for file in files)
    least_bytes = min(RUN_BYTES, -(-total // options.num_workers))
    tasks: list[ReadTask] = []
    start = size = 0
    for end, file in enumerate(files, start=1):
        size += file.size
        if size >= least_bytes or end == len(files):
            tasks.append(ReadTask(len(tasks), files[start:end], start, options, str(staging)))
            start, size = end, 0
    return tasks


def quarantine_file(staging: Path, task_number: int) -> Path:
    """Where a task puts bad records; one file each, since tasks may run at once."""
    return staging / f"quarantine-{task_number:06d}.jsonl"


class FileReading:
    """One file being read; `sha256` and `is_empty_code` are known when `read` has ended."""

    def __init__(self, file: InputFile, options: IngestOptions, on_read: Callable[[int], None]):
        self._file = file
        self._options = options
        self._on_read = on_read
        self.sha256 = ""
        self.is_empty_code = False

    def read(self) -> Iterator[Document | Bad]:
        """Documents and bad records, in order."""
        path = self._file.path
        try:
            is_parquet = self._file.kind == PARQUET_KIND
            with CountedFile(path, _count_nothing if is_parquet else self._on_read) as counted:
                if self._file.kind == CODE_KIND and counted.stat.st_size == 0:
                    self.is_empty_code = True
                else:
                    yield from self._documents(counted)
                counted.drain()
                self.sha256 = counted.sha256
                status = counted.stat
            if (status.st_size, status.st_mtime_ns) != (self._file.size, self._file.mtime_ns):
                sizes = f"size {self._file.size}, then {status.st_size}"
                # Its documents are on their way already; most often it only grew.
                yield Bad(
                    CHANGED, path, f"{sizes}; if skipped, what was read of it stays in; ingest it when it is at rest"
                )
        except OSError as error:
            yield Bad(UNREADABLE, path, error.strerror or str(error))

    def _documents(self, counted: CountedFile) -> Iterator[Document | Bad]:
        file = self._file
        rules = TextRules(self._options.max_document_bytes, self._options.line_endings)
        fields = Fields.of(self._options)
        if file.kind == PARQUET_KIND:
            yield from read_parquet(file, fields, rules, self._on_read)
            return
        with decompressed(counted, file.path) as stream:
            yield from _READERS[file.kind](stream, file, fields, rules)


def _read_text(stream: BufferedReader, file: InputFile, fields: Fields, rules: TextRules) -> Iterator[Document | Bad]:
    return read_text(stream, file, rules)


_READERS = {
    TEXT_KIND: _read_text,
    CODE_KIND: _read_text,
    JSONL_KIND: read_jsonl,
    TFRECORD_KIND: read_tfrecord,
}


def _count_nothing(num_bytes: int) -> None:
    """Parquet is read out of order: its hash is a pass of its own, and its reader counts."""


def _keep_nothing(bad: Bad) -> None:
    """Bad records are kept in quarantine only."""
