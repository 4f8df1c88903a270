"""Progress across processes: whoever reads appends byte counts to a file, whoever shows follows it.

A file works for threads, processes and machines that share the corpus folder alike; Beam's own
metrics can be read only after its local runner is done.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from ingest.report import Progress

_REPORT_BYTES = 1 << 20
"""Bytes read between two lines of a process: a thousand lines for a gigabyte."""

_FOLLOW_S = 0.1
"""Time between two looks: what a progress bar can show."""


class ProgressWriter:
    """Appends byte counts; made in the process that reads."""

    def __init__(self, path: Path):
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._pending = 0

    def add(self, num_bytes: int) -> None:
        self._pending += num_bytes
        if self._pending >= _REPORT_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        os.close(self._descriptor)

    def _flush(self) -> None:
        if self._pending:
            os.write(self._descriptor, b"%d\n" % self._pending)
            self._pending = 0


class ProgressFollower:
    """Calls back from a thread of its own while the block runs.

    An exception of the callback ends the calls and is raised at the end of the block.
    """

    def __init__(self, path: Path, total_bytes: int, on_progress: Callable[[Progress], None] | None):
        self._path = path
        self._total_bytes = total_bytes
        self._on_progress = on_progress
        self._phase = "read"
        self._done_bytes = 0
        self._offset = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> "ProgressFollower":
        self._path.touch()
        if self._on_progress is not None:
            self._thread = threading.Thread(target=self._follow, name="ingest-progress", daemon=True)
            self._thread.start()
        return self

    def writing(self) -> None:
        """Everything has been read."""
        self._phase = "write"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _follow(self) -> None:
        try:
            while not self._stop.wait(_FOLLOW_S):
                self.tell()
            self.tell()
        except BaseException as error:  # noqa: BLE001 - carried to the thread that waits, which raises it
            self._error = error

    def tell(self) -> None:
        """One call back, with what has been counted so far."""
        phase = self._phase
        with self._path.open("rb") as file:
            file.seek(self._offset)
            lines = file.read()
        complete = lines.rfind(b"\n") + 1
        self._offset += complete
        self._done_bytes += sum(map(int, lines[:complete].split()))
        if self._on_progress is not None:
            self._on_progress(Progress(phase, self._done_bytes, self._total_bytes))
