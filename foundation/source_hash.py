"""A fingerprint of code: what makes the cache notice that a line, or a library's version, has changed.

TFX's cache compares properties and inputs. An import path is the same before and after an edit,
so each component carries the hash of the code it runs as one of its properties.
"""

import hashlib
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_LOCK = _ROOT / "requirements.lock"


def source_hash(*places: str) -> str:
    """SHA-256 (first 16 hex digits) over the Python files at `places`, and over the locked versions of all libraries.

    Args:
      places: folders or files relative to the project's root, e.g. `trainer_module`,
        `foundation/rows.py`. Folders are read recursively. The order of arguments does not matter.

    Raises:
      FileNotFoundError: a place that does not exist, or a folder without Python files.
    """
    digest = hashlib.sha256(_LOCK.read_bytes() if _LOCK.exists() else b"")
    for place in sorted(set(places)):
        path = _ROOT / place
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        if not files:
            raise FileNotFoundError(f"no Python code at {path}")
        for file in files:
            digest.update(str(file.relative_to(_ROOT)).encode() + b"\0")
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]
