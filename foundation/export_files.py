"""The files of an exported model, and whether they are still what they were when it was written."""

import hashlib
import json
from pathlib import Path

from foundation.errors import ModelError

ASSETS_EXTRA = "assets.extra"
CHECKSUMS_FILE = "checksums.json"
"""In `assets.extra`: SHA-256 of every other file, by path from the model's folder."""

_REMEDY = "take another version, or run the pipeline again"


def check_files(folder: Path) -> None:
    """Compares a model's files with its checksums; a model without any, made by others, passes.

    Raises:
      ModelError: a file is missing or has changed, or the checksums cannot be read.
    """
    path = folder / ASSETS_EXTRA / CHECKSUMS_FILE
    if not path.exists():
        return
    try:
        expected = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); {_REMEDY}") from error
    for name, digest in expected.items():
        file = folder / name
        if not file.is_file():
            raise ModelError(f"{file}: missing, though the model was written with it; {_REMEDY}")
        if sha256_of(file) != digest:
            raise ModelError(f"{file}: has changed since the model was written; {_REMEDY}")


def sha256_of(path: Path) -> str:
    """Hex digest of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
