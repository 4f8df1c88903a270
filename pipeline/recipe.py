"""The recipe of a model: a fingerprint of everything that decides it, known before anything runs."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfx.dsl.components.base.base_node import BaseNode

from foundation.documents import DOCUMENT_FILE_PREFIX


def recipe_of(before_training: Iterable[BaseNode], training: dict[str, Any], documents: Path, span: int | None) -> str:
    """16 hex digits.

    Args:
      before_training: components from the documents to the rows; what they are set to, their code's hashes among that.
      training: JSON values that decide the training.
      documents: folder of spans; its files count by name, size and time, as they do for TFX's cache.
      span: the span that is taken; None: the newest.
    """
    settings = {
        component.id: {key: str(value) for key, value in component.exec_properties.items()}
        for component in before_training
    }
    text = json.dumps([settings, training, _files(documents, span)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _files(documents: Path, span: int | None) -> list[tuple[str, int, int]]:
    """Name, bytes and time (ns) of each file of documents; none where there are none."""
    numbers = [
        int(folder.name.removeprefix("span-"))
        for folder in documents.glob("span-*")
        if folder.name.removeprefix("span-").isdigit()
    ]
    taken = span if span is not None else max(numbers, default=0)
    found = []
    for path in sorted(documents.glob(f"span-{taken}/{DOCUMENT_FILE_PREFIX}-*")):
        stat = path.stat()
        found.append((f"{path.parent.name}/{path.name}", stat.st_size, stat.st_mtime_ns))
    return found
