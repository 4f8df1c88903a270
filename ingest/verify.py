"""Whether a span is still what its ingest published. Damage has a file's name here; a reader of records knows none."""

import hashlib
import json
from pathlib import Path

from foundation.errors import CorpusError
from ingest.manifest import MANIFEST_NAME
from ingest.span import spans

_REMEDY = "bring the file back, or delete the span's folder and ingest the documents again"


def check_shards(out: Path, span: int | None, contents: bool = False) -> None:
    """Compares a span's shards with its manifest; documents without one, made by others, pass.

    Args:
      out: the corpus folder.
      span: None for the newest.
      contents: their SHA-256, too, which reads all of them; else only that they are there and have their sizes.

    Raises:
      CorpusError: a shard is missing or is not what was written, or the manifest cannot be read.
    """
    taken = spans(out)
    number = max(taken, default=0) if span is None else span
    if number not in taken:
        return
    path = taken[number] / MANIFEST_NAME
    if not path.exists():
        return
    try:
        shards = [
            (str(shard["name"]), int(shard["num_bytes"]), str(shard["sha256"]))
            for shard in json.loads(path.read_text(encoding="utf-8"))["shards"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"{path}: cannot be read ({type(error).__name__}: {error}); {_REMEDY}") from error
    for name, num_bytes, digest in shards:
        shard = taken[number] / name
        actual = shard.stat().st_size if shard.is_file() else None
        if actual != num_bytes:
            found = "missing" if actual is None else f"{actual} bytes"
            raise CorpusError(f"{shard}: {found}, but {num_bytes} bytes were written; {_REMEDY}")
        if contents and _sha256(shard) != digest:
            raise CorpusError(f"{shard}: its content has changed since it was written; {_REMEDY}")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
