"""Files and folders that appear whole or not at all: written beside their place, synced, renamed."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

STAGING_PREFIX = ".staging-"
"""A name with this prefix is unfinished work: readers ignore it, a later run may remove it."""


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes `text` (UTF-8) to `path`, replacing what was there in one step."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes `data` to `path`, replacing what was there in one step."""
    target = Path(path)
    staged = staging_path(target)
    try:
        with staged.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(target)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


@contextlib.contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives an empty folder to fill; on leaving it becomes `path`, on an exception it is removed.

    Raises:
      OSError: `path` exists and is not an empty folder (ENOTEMPTY, EEXIST, ENOTDIR).
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = staging_path(target)
    staged.mkdir()
    try:
        yield staged
        sync_tree(staged)
        staged.rename(target)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    sync_folder(target.parent)


def staging_path(target: Path) -> Path:
    """A name beside `target` that no other process uses."""
    return target.with_name(f"{STAGING_PREFIX}{target.name}-{uuid.uuid4().hex[:12]}")


def sync_tree(folder: Path) -> None:
    """Forces every file and folder below `folder`, and itself, to the disk."""
    for parent, _, files in os.walk(folder):
        for name in files:
            _sync(os.path.join(parent, name), os.O_RDONLY)
        sync_folder(Path(parent))


def sync_folder(folder: Path) -> None:
    """Forces the entries of `folder` (creations, renames) to the disk."""
    _sync(str(folder), os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
