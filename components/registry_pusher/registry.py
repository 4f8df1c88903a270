"""The model registry: a folder tree that TensorFlow Serving can watch.

    REGISTRY/MODEL/1/    saved_model.pb, variables/, assets/, assets.extra/, manifest.json
    REGISTRY/MODEL/2/    ...

Versions are whole numbers that only grow; the newest is served. A version is written under a name that
is no number, which serving ignores, synced, and renamed: whatever is killed when, serving never sees half
a model. The rename fails where the number is taken, so pushers that run at once get different numbers.
`manifest.json` holds the checksum of every file and what the pusher knew of the model's origin.
"""

import contextlib
import datetime
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from foundation import atomic
from foundation.errors import ConfigError, HostError, ModelError

MANIFEST_NAME = "manifest.json"

STALE_AFTER_S = 3600
"""Unfinished work is removed when nothing has been written to it for so long and nobody holds its lock. The lock alone
would do on one machine; on a shared file system without locks across machines the age protects a push under way."""

_CHUNK_BYTES = 1 << 20


class Push(NamedTuple):
    """What `push` did."""

    version: int
    folder: Path
    is_new: bool
    """False: the newest version holds the same files, so nothing was written."""


def list_versions(registry_dir: str | Path, model_name: str) -> list[int]:
    """Versions of a model, oldest first; empty if there are none."""
    folder = _model_folder(registry_dir, model_name)
    return _versions_in(folder) if folder.is_dir() else []


def newest_version(registry_dir: str | Path, model_name: str) -> int | None:
    """The version that serving takes; None if there is none."""
    return max(list_versions(registry_dir, model_name), default=None)


def version_folder(registry_dir: str | Path, model_name: str, version: int) -> Path:
    """Folder of a version: a SavedModel.

    Raises:
      ModelError: there is no such version.
    """
    folder = _model_folder(registry_dir, model_name) / str(version)
    if not folder.is_dir():
        known = ", ".join(map(str, list_versions(registry_dir, model_name))) or "none"
        raise ModelError(f"{folder}: no such version; known: {known}. Received: version={version}")
    return folder


def read_manifest(registry_dir: str | Path, model_name: str, version: int) -> dict[str, Any]:
    """What was recorded of a version.

    Raises:
      ModelError: there is no such version, or its manifest is missing or damaged.
    """
    path = version_folder(registry_dir, model_name, version) / MANIFEST_NAME
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(manifest["files"], dict):
            raise TypeError("files is not a mapping")
    except FileNotFoundError:
        raise ModelError(f"{path} is missing, so the version was not made by a push; push the model again") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is not a manifest ({error}); push the model again") from error
    return manifest


def verify(registry_dir: str | Path, model_name: str, version: int) -> list[str]:
    """Compares a version's files with its manifest.

    Returns:
      One line for each file that is missing, changed or added; empty if the version is sound.

    Raises:
      ModelError: as `read_manifest`.
    """
    manifest = read_manifest(registry_dir, model_name, version)
    folder = version_folder(registry_dir, model_name, version)
    expected = manifest["files"]
    found = _checksums(folder)
    found.pop(MANIFEST_NAME, None)
    faults = [f"{name}: missing" for name in sorted(expected.keys() - found.keys())]
    faults += [f"{name}: not in the manifest" for name in sorted(found.keys() - expected.keys())]
    for name in sorted(expected.keys() & found.keys()):
        if found[name] != expected[name]:
            faults.append(f"{name}: SHA-256 is {found[name]}, the manifest says {expected[name]}")
    if manifest.get("version") != version:
        faults.append(f"{MANIFEST_NAME}: says version {manifest.get('version')}")
    return faults


def push(registry_dir: str | Path, model_name: str, source: str | Path, facts: Mapping[str, Any]) -> Push:
    """Makes `source` the newest version, unless that holds the same files already and is sound.

    Args:
      source: a SavedModel.
      facts: JSON values that go into the manifest beside `model_name`, `version`, `created` and `files`.

    Raises:
      ModelError: `source` is no SavedModel.
      ConfigError: `model_name` is no name for a folder.
      HostError: the registry cannot be written to.
    """
    source = Path(source)
    if not (source / "saved_model.pb").is_file():
        raise ModelError(f"{source}: holds no saved_model.pb, so it is no SavedModel; export the model again")
    folder = _model_folder(registry_dir, model_name)
    checksums = _checksums(source)
    newest = newest_version(registry_dir, model_name)
    if newest is not None and _holds(registry_dir, model_name, newest, checksums):
        return Push(newest, folder / str(newest), is_new=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder)
        version = _write_version(folder, source, {"model_name": model_name, **facts})
    except OSError as error:
        raise HostError(
            f"{folder}: no version can be written: {error}; free space or mend access, and run again"
        ) from error
    return Push(version, folder / str(version), is_new=True)


def remove_old(registry_dir: str | Path, model_name: str, keep_versions: int, served: int | None = None) -> list[int]:
    """Removes all but the newest `keep_versions`, never the served version nor the one before it.

    Args:
      served: the version that is served; the newest if not given.

    Returns:
      The versions removed.
    """
    if keep_versions < 1:
        raise ConfigError(f"keep_versions must be at least 1. Received: keep_versions={keep_versions}")
    folder = _model_folder(registry_dir, model_name)
    if not folder.is_dir():
        return []
    doomed = []
    with _locked(folder):
        versions = _versions_in(folder)
        if not versions:
            return []
        served = versions[-1] if served is None else served
        predecessor = [version for version in versions if version < served][-1:]
        kept = {*versions[-keep_versions:], served, *predecessor}
        removed = [version for version in versions if version not in kept]
        for version in removed:
            # Out of serving's sight in one step; file by file once nobody waits for the lock.
            doomed.append(atomic.staging_path(folder / str(version)))
            (folder / str(version)).rename(doomed[-1])
    for remains in doomed:
        # A push that finds them old enough may be removing them already.
        with contextlib.suppress(FileNotFoundError), _locked(remains):
            shutil.rmtree(remains)
    return removed


def _model_folder(registry_dir: str | Path, model_name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", model_name):
        raise ConfigError(
            f"model_name must consist of letters, digits, '.', '_' and '-' and start with a letter or digit. "
            f"Received: model_name={model_name!r}"
        )
    return Path(registry_dir) / model_name


def _versions_in(folder: Path) -> list[int]:
    with os.scandir(folder) as entries:
        return sorted(int(entry.name) for entry in entries if re.fullmatch("[0-9]+", entry.name) and entry.is_dir())


def _holds(registry_dir: str | Path, model_name: str, version: int, checksums: dict[str, str]) -> bool:
    """Whether a version consists of these files and is sound."""
    try:
        expected = read_manifest(registry_dir, model_name, version)["files"]
        return expected == checksums and not verify(registry_dir, model_name, version)
    except (ModelError, FileNotFoundError):
        return False  # not made by a push, damaged, or just removed as too old: what it holds is not known


def _write_version(folder: Path, source: Path, facts: dict[str, Any]) -> int:
    """Copies `source` beside the versions of `folder`, then gives it the next number; returns that."""
    staged = atomic.staging_path(folder / "version")
    staged.mkdir()
    try:
        with _locked(staged):  # until it has its name: nobody takes it for the remains of a dead process
            files = _copy_tree(source, staged)
            atomic.sync_tree(staged)
            # The lock lets versions appear one by one; where a file system has none, the rename still fails
            # if another has taken the number.
            with _locked(folder):
                while True:
                    version = max(_versions_in(folder), default=0) + 1
                    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
                    manifest = {"version": version, "created": created, "files": files, **facts}
                    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False)
                    atomic.write_text(staged / MANIFEST_NAME, text + "\n")
                    try:
                        staged.rename(folder / str(version))
                        break
                    except OSError as error:
                        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                            raise
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    atomic.sync_folder(folder)
    return version


def _checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file, by its path relative to `folder`, sorted."""
    checksums = {}
    for name in _files(folder):
        with (folder / name).open("rb") as file:
            checksums[name] = _digest(file, None)
    return checksums


def _copy_tree(source: Path, target: Path) -> dict[str, str]:
    """Copies files and folders; returns the checksums of what was written."""
    for parent, _, _ in os.walk(source):
        (target / os.path.relpath(parent, source)).mkdir(exist_ok=True)
    checksums = {}
    for name in _files(source):
        with (target / name).open("xb") as copy, (source / name).open("rb") as original:
            checksums[name] = _digest(original, copy)
    return checksums


def _digest(file: BinaryIO, copy: BinaryIO | None) -> str:
    """SHA-256 of `file`, which is written to `copy` on the way."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
        if copy:
            copy.write(chunk)
    return digest.hexdigest()


def _files(folder: Path) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(parent, name), folder) for parent, _, names in os.walk(folder) for name in names
    )


@contextlib.contextmanager
def _locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Holds a lock on a folder, which the kernel lets go when this process dies, however it dies.

    Raises:
      BlockingIOError: another process holds it, and `wait` is false.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def _remove_stale(folder: Path) -> None:
    """Removes unfinished work that dead processes have left."""
    for staged in folder.glob(f"{atomic.STAGING_PREFIX}*"):
        # Held by a living process; or gone since the listing; or a file, which is no work of a push.
        with contextlib.suppress(BlockingIOError, FileNotFoundError, NotADirectoryError):
            if time.time() - _last_written(staged) > STALE_AFTER_S:
                with _locked(staged, wait=False):
                    shutil.rmtree(staged)


def _last_written(folder: Path) -> float:
    """When a folder or anything in it was last written to, seconds since the epoch."""
    times = [folder.stat().st_mtime]
    for parent, folders, names in os.walk(folder):
        times += (os.stat(os.path.join(parent, name)).st_mtime for name in (*folders, *names))
    return max(times)
