"""Signs of life of a worker process, for whoever supervises it.

`TOKENMILL_HEARTBEAT` names a file; while it is set, a thread rewrites the file every second with one JSON
object: `time` (now, seconds since the epoch), `phase`, `step`, and `moved`, when the last of those changed.
A process that was stopped or has died beats no more; one that hangs beats, but does not move. While it looks for
the others (`joining`) it does not beat either: TensorFlow waits for them and holds Python's lock.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HEARTBEAT_VARIABLE = "TOKENMILL_HEARTBEAT"

STARTING, JOINING, FORMED, TRAINING, EXPORTING, ENDED = (
    "starting",
    "joining",
    "formed",
    "training",
    "exporting",
    "ended",
)
"""Phases, in their order. joining: looks for the other workers; formed: has found them."""

_PERIOD_S = 1.0


class Beat(NamedTuple):
    """What a worker last said of itself."""

    time: float
    phase: str
    step: int
    moved: float


class _Heart:
    """The state that the thread writes. One per process."""

    def __init__(self) -> None:
        self.phase, self.step, self.moved = STARTING, 0, time.time()
        self.path: Path | None = None
        self._lock = threading.Lock()

    def write(self) -> None:
        if self.path is None:
            return
        beat = Beat(time.time(), self.phase, self.step, self.moved)
        staged = self.path.with_suffix(".new")
        # A full disk is no reason to end a training: the beats stop, and who listens decides.
        with self._lock, contextlib.suppress(OSError):
            staged.write_text(json.dumps(beat._asdict()), encoding="utf-8")
            staged.replace(self.path)


_heart = _Heart()


def move(phase: str, step: int = 0) -> None:
    """Says how far this process is."""
    is_news = phase != _heart.phase
    _heart.phase, _heart.step, _heart.moved = phase, step, time.time()
    if is_news:  # at once: what follows may hold Python's lock
        _heart.write()


@contextlib.contextmanager
def beating() -> Iterator[None]:
    """Beats until the end of the block; does nothing without `TOKENMILL_HEARTBEAT`."""
    name = os.environ.get(HEARTBEAT_VARIABLE)
    if not name:
        yield
        return
    _heart.path, ended = Path(name), threading.Event()

    def beat() -> None:
        _heart.write()
        while not ended.wait(_PERIOD_S):
            _heart.write()

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _heart.write()


def read_beat(path: Path) -> Beat | None:
    """The newest sign of life; None before the first."""
    try:
        return Beat(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
