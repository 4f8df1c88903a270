"""What the tests of ingest share: a reader of one file without Beam, an ingest of files, and its documents."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foundation.tfrecord import read_records
from ingest.bad import Bad
from ingest.documents import Document
from ingest.examples import decode
from ingest.inputs import discover
from ingest.options import IngestOptions
from ingest.reading import FileReading
from ingest.report import IngestReport
from ingest.run import run_ingest


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An empty folder for input files."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., list[Document | Bad]]:
    """Everything that one file gives."""

    def read_file(path: Path, **options: Any) -> list[Document | Bad]:
        settings = IngestOptions(out=str(tmp_path / "corpus"), inputs=[str(path)], **options)
        found = discover(settings)
        assert found.bad == []
        (file,) = found.files
        return list(FileReading(file, settings, lambda num_bytes: None).read())

    return read_file


@pytest.fixture
def ingest(tmp_path: Path, data: Path) -> Callable[..., IngestReport]:
    """An ingest of `data` (or `inputs`) into `tmp_path / "corpus"`."""

    def run(*inputs: Path | str, **options: Any) -> IngestReport:
        on_progress = options.pop("on_progress", None)
        if not options.get("stdlib"):
            options["inputs"] = [str(place) for place in inputs or (data,)]
        return run_ingest(IngestOptions(**{"out": str(tmp_path / "corpus"), **options}), on_progress)

    return run


@pytest.fixture
def documents() -> Callable[[IngestReport], list[tuple[str, bytes, str]]]:
    """(doc_id, text, source) of every document of a span, shard after shard."""

    def load(report: IngestReport) -> list[tuple[str, bytes, str]]:
        found = []
        for shard in sorted(Path(report.span_folder).glob("documents-*")):
            for record in read_records(shard):
                features = decode(record)
                assert sorted(features) == ["doc_id", "source", "text"]
                (doc_id,), (text,), (source,) = (features[name] for name in ("doc_id", "text", "source"))
                found.append((doc_id.decode(), text, source.decode()))
        return found

    return load
