"""Folders that look like exported models, and processes that push them."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PUSH = """
import contextlib, sys
from components.registry_pusher import registry
_, locks, registry_dir, *sources = sys.argv
if locks == "without":
    registry.locked = lambda folder, wait=True: contextlib.nullcontext()
for source in sources:
    print(registry.push(registry_dir, "toy", source, {"from": source}).version, flush=True)
"""
"""Program that pushes its arguments one after another and prints their versions."""


def save_export(folder: Path, weights: bytes) -> Path:
    """A folder with the files of a SavedModel."""
    for name, content in (
        ("saved_model.pb", b"graph"),
        ("assets/spm", b"tokenizer"),
        ("assets.extra/tokenmill.json", json.dumps({"model": {"width": 64}}).encode()),
        ("variables/variables.data-00000-of-00001", weights),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def start_push(registry_dir: Path, *sources: Path, locks: bool = True) -> subprocess.Popen[str]:
    """A process that pushes `sources` in order, as on a file system with or without locks."""
    root = Path(__file__).resolve().parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", PUSH, "with" if locks else "without", str(registry_dir), *map(str, sources)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


@contextlib.contextmanager
def reader_of(fifo: Path) -> Iterator[BinaryIO]:
    """Waits until another process reads the named pipe `fifo`; what is written here is what it reads.

    The next time it opens that path it finds a pipe of its own, so the readings cannot be taken for each other.
    """
    with fifo.open("wb") as pipe:
        fifo.unlink()
        os.mkfifo(fifo)
        yield pipe
