"""Span folders: found, staged, published whole, and cleaned of what killed ingests left.

An ingest works in `OUT/.staging-...`, which no reader looks into, and holds a lock on a file there
for as long as it lives; the kernel frees the lock of a process that dies in any way. Staging
is made, removed and published under one more lock, `OUT/.ingest.lock`, held only for that moment.
"""

import contextlib
import fcntl
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from foundation import atomic
from foundation.errors import ConfigError

_SPAN_PATTERN = re.compile(r"span-0*(\d+)")
_LOCK_NAME = ".ingest.lock"
_ALIVE_NAME = ".alive"


def span_folder(out: Path, span: int) -> Path:
    return out / f"span-{span}"


def spans(out: Path) -> dict[int, Path]:
    """Every span folder of a corpus, complete or not, in order."""
    found = {}
    if out.is_dir():
        for entry in out.iterdir():
            if (match := _SPAN_PATTERN.fullmatch(entry.name)) and entry.is_dir():
                found[int(match[1])] = entry
    return dict(sorted(found.items()))


def is_ingests_own(name: str) -> bool:
    """Whether a file or folder of a corpus folder, by its name, is one that ingests make there."""
    return bool(_SPAN_PATTERN.fullmatch(name)) or name.startswith(atomic.STAGING_PREFIX) or name == _LOCK_NAME


@contextlib.contextmanager
def corpus_lock(out: Path) -> Iterator[None]:
    """Held by one process at a time; waits for it."""
    with (out / _LOCK_NAME).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def staging_folder(out: Path) -> Iterator[Path]:
    """A folder to work in, removed at the end unless it was published; first removes those of dead ingests."""
    out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        with corpus_lock(out):
            _remove_stale(out)
            folder = atomic.staging_path(out / "ingest")
            folder.mkdir()
            alive = stack.enter_context((folder / _ALIVE_NAME).open("w"))
            fcntl.flock(alive, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            _remove(folder)


def publish(staging: Path, out: Path, span: int | None) -> Path:
    """Makes `staging` the span's folder, in one step. Called under `corpus_lock`, with everything in it synced.

    Args:
      span: None for the next free number.

    Raises:
      ConfigError: the span is there.
    """
    (staging / _ALIVE_NAME).unlink()
    taken = spans(out)
    target = span_folder(out, max(taken, default=0) + 1 if span is None else span)
    if span in taken:
        raise span_taken_error(target)
    atomic.sync_folder(staging)
    staging.rename(target)
    atomic.sync_folder(out)
    return target


def span_taken_error(folder: Path) -> ConfigError:
    """A span never changes: models are traced to the documents in it."""
    return ConfigError(
        f"{folder} holds other documents, and a span never changes: models are traced to what is in it; "
        f"choose another span, or none for the next free one. Received: span={folder.name.removeprefix('span-')}"
    )


def _remove_stale(out: Path) -> None:
    for folder in out.glob(f"{atomic.STAGING_PREFIX}ingest-*"):
        try:
            with (folder / _ALIVE_NAME).open("r+") as alive:
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except FileNotFoundError:
            pass  # Died between making the folder and its lock, or while removing it: both under the corpus lock.
        _remove(folder)


def _remove(folder: Path) -> None:
    """Renamed first: a task of an interrupted ingest that is still at work can then put nothing new into it."""
    doomed = atomic.staging_path(folder.with_name("ingest"))
    with contextlib.suppress(FileNotFoundError):  # Published.
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
