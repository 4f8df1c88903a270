"""What a span says about itself: `ingest.json` for the whole, `inputs.jsonl` with a line for each file.

Neither begins with `documents`, so the pipeline's pattern does not read them as shards.
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingest.bad import Bad
from ingest.inputs import Discovery, InputFile
from ingest.options import IngestOptions
from ingest.readers.streams import BLOCK_BYTES
from ingest.report import IngestReport
from ingest.shards import Shard

MANIFEST_NAME = "ingest.json"
INPUTS_NAME = "inputs.jsonl"

OUTPUT_VERSION = 1
"""To be raised when the same input and settings give other bytes than before: spans are then made anew."""

_ALWAYS_HASHED_BYTES = 256 << 20
"""Inputs up to this size are hashed to see whether they changed (a fifth of a second); else size and time count."""

_RACY_NS = 2_000_000_000
"""A file written this shortly before it was read may be written again within one tick of its clock: it is hashed."""


def write_manifest(
    folder: Path,
    options: IngestOptions,
    found: Discovery,
    sha256: list[str],
    shards: list[Shard],
    report: IngestReport,
    started_ns: int,
) -> None:
    """Writes both files into an unpublished span."""
    with (folder / INPUTS_NAME).open("w", encoding="utf-8") as lines:
        for file, digest in zip(found.files, sha256, strict=True):
            lines.write(json.dumps({**dataclasses.asdict(file), "sha256": digest}, ensure_ascii=True) + "\n")
    described = dataclasses.asdict(report)
    for name in ("span_folder", "unchanged"):
        del described[name]
    manifest = {
        "output_version": OUTPUT_VERSION,
        "started_ns": started_ns,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started_ns // 1_000_000_000)),
        "inputs": list(options.inputs),
        "stdlib": options.stdlib,
        "settings": options.settings(),
        "bad_inputs_sha256": _hash_of_bad(found.bad),
        "report": described,
        "shards": [
            {name: value for name, value in dataclasses.asdict(shard).items() if name in _SHARD_FIELDS}
            for shard in shards
        ],
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=False)
    (folder / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")


_SHARD_FIELDS = ("name", "num_documents", "num_bytes", "text_bytes", "sha256")


def load_if_same(folder: Path, options: IngestOptions, found: Discovery) -> IngestReport | None:
    """The report of a complete span made of these inputs with these settings; None if it is another, or damaged."""
    try:
        manifest = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
        recorded = [json.loads(line) for line in (folder / INPUTS_NAME).read_text(encoding="utf-8").splitlines()]
        if not _same_settings(manifest, options) or not _shards_present(folder, manifest):
            return None
        # An input that is missing now was no part of it, or was counted as another.
        if manifest.get("bad_inputs_sha256", _hash_of_bad([])) != _hash_of_bad(found.bad):
            return None
        if not _same_files(recorded, found.files, manifest["started_ns"]):
            return None
        return IngestReport(span_folder=str(folder), unchanged=True, **manifest["report"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # No span of ours, or a damaged one: it is left alone, and the documents are made anew.


def _same_settings(manifest: dict[str, Any], options: IngestOptions) -> bool:
    now, then = options.settings(), dict(manifest["settings"])
    if not manifest["report"]["bad"]:
        # Where nothing was bad it made no difference what was to be done about it.
        del now["on_bad"], then["on_bad"]
    return manifest["output_version"] == OUTPUT_VERSION and json.loads(json.dumps(now)) == then


def _hash_of_bad(inputs: Sequence[Bad]) -> str:
    """Of what discovery found to be bad, in its order."""
    lines = "".join(f"{bad}\n" for bad in inputs)
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()


def _shards_present(folder: Path, manifest: dict[str, Any]) -> bool:
    return all((folder / shard["name"]).stat().st_size == shard["num_bytes"] for shard in manifest["shards"])


def _same_files(recorded: list[dict[str, Any]], files: list[InputFile], started_ns: int) -> bool:
    if len(recorded) != len(files):
        return False
    for then, file in zip(recorded, files, strict=True):
        if (then["name"], then["source"], then["kind"], then["size"]) != (file.name, file.source, file.kind, file.size):
            return False
    hash_all = sum(file.size for file in files) <= _ALWAYS_HASHED_BYTES
    for then, file in zip(recorded, files, strict=True):
        untouched = then["mtime_ns"] == file.mtime_ns and file.mtime_ns < started_ns - _RACY_NS
        if (hash_all or not untouched) and _sha256(file.path) != then["sha256"]:
            return False
    return True


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
