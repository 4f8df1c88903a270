"""The running interpreter's own standard library: a corpus of real text that is on every machine."""

import os
import sysconfig
from pathlib import Path

from ingest.inputs import CODE_KIND, InputFile

_NAME = "stdlib"

_TEST_FOLDERS = frozenset({"test", "tests", "idle_test"})
"""At any depth: json, ctypes, lib2to3 and others keep theirs beside the code. Their texts are wrong on purpose."""

_OTHER_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__"})
"""Installed packages are no part of it."""


def stdlib_files(source: str | None = None) -> list[InputFile]:
    """Its .py files, sorted by path. Their source is `source`, else the top-level package or module."""
    root = Path(sysconfig.get_path("stdlib"))
    files = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _TEST_FOLDERS | _OTHER_FOLDERS)
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix != ".py" or not path.is_file():
                continue
            below = path.relative_to(root)
            status = path.stat()
            files.append(
                InputFile(
                    path=str(path),
                    name="/".join((_NAME, *below.parts)),
                    source=source or below.with_suffix("").parts[0],
                    kind=CODE_KIND,
                    size=status.st_size,
                    mtime_ns=status.st_mtime_ns,
                )
            )
    return sorted(files, key=lambda file: file.name)
