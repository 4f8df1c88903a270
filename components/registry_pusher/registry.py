"""The model registry: a folder tree that TensorFlow Serving can watch.

    REGISTRY/MODEL/1/    saved_model.pb, variables/, assets/, assets.extra/, manifest.json
    REGISTRY/MODEL/2/    ...

Versions are whole numbers that only grow; the newest is served, as TensorFlow Serving does it of itself. To go
back, an earlier version's files are published again under a new number (`rollback`): so a server that watches the
folder follows, whatever its settings, and there is no pointer that could disagree with it.

A version is written under a name that is no number, which serving ignores, synced, and renamed: whatever is killed
when, serving never sees half a model. The rename fails where the number is taken, so pushers that run at once get
different numbers.
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from foundation import atomic
from foundation.errors import ConfigError, HostError, ModelError

MANIFEST_NAME = "manifest.json"

STALE_AFTER_S = 3600
"""Unfinished work is removed when nothing has been written to it for so long and nobody holds its lock. The lock alone
would do on one machine; on a shared file system without locks across machines the age protects a push under way."""

_CHUNK_BYTES = 1 << 20


class WithdrawnError(ModelError):
    """These very files were served once and taken back by a rollback: no pipeline puts them in front of users again."""


class Push(NamedTuple):
    """What `push` did."""

    version: int
    folder: Path
    is_new: bool
    """False: the newest version holds the same files, so nothing was written."""


def list_versions(registry_dir: str | Path, model_name: str) -> list[int]:
    """Versions of a model, oldest first; empty if there are none."""
    folder = model_folder(registry_dir, model_name)
    return versions_in(folder) if folder.is_dir() else []


def newest_version(registry_dir: str | Path, model_name: str) -> int | None:
    """The version that is served; None if there is none."""
    return max(list_versions(registry_dir, model_name), default=None)


def version_folder(registry_dir: str | Path, model_name: str, version: int) -> Path:
    """Folder of a version: a SavedModel.

    Raises:
      ModelError: there is no such version.
    """
    folder = model_folder(registry_dir, model_name) / str(version)
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


def digest_of(files: Mapping[str, str]) -> str:
    """SHA-256 (hex) of a model: of its files' names and checksums, as a manifest has them."""
    return hashlib.sha256(json.dumps(dict(files), sort_keys=True).encode()).hexdigest()


def withdrawn(registry_dir: str | Path, model_name: str) -> dict[str, dict[str, Any]]:
    """Models that a rollback took back, by digest: `version`, `when`, `reason`."""
    return _withdrawn_in(model_folder(registry_dir, model_name))


def push(registry_dir: str | Path, model_name: str, source: str | Path, facts: Mapping[str, Any]) -> Push:
    """Makes `source` the newest version, unless that holds the same files already and is sound.

    Args:
      source: a SavedModel.
      facts: JSON values that go into the manifest beside `model_name`, `version`, `created` and `files`.

    Raises:
      ModelError: `source` is no SavedModel.
      WithdrawnError: a rollback took this model back.
      ConfigError: `model_name` is no name for a folder.
      HostError: the registry cannot be written to.
    """
    source = Path(source)
    if not (source / "saved_model.pb").is_file():
        raise ModelError(f"{source}: holds no saved_model.pb, so it is no SavedModel; export the model again")
    folder = model_folder(registry_dir, model_name)
    checksums = _checksums(source)
    newest = newest_version(registry_dir, model_name)
    if newest is not None and _holds(registry_dir, model_name, newest, checksums):
        return Push(newest, folder / str(newest), is_new=False)
    if taken_back := withdrawn(registry_dir, model_name).get(digest_of(checksums)):
        raise WithdrawnError(
            f"{source}: the same model as version {taken_back['version']}, which was rolled back on "
            f"{taken_back['when']}; to serve it all the same: tokenmill registry promote {taken_back['version']}"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder)
        version = write_version(folder, source, {"model_name": model_name, **facts})
    except OSError as error:
        raise HostError(
            f"{folder}: no version can be written: {error}; free space or mend access, and run again"
        ) from error
    return Push(version, folder / str(version), is_new=True)


def model_folder(registry_dir: str | Path, model_name: str) -> Path:
    """Where a model's versions lie; it need not exist.

    Raises:
      ConfigError: `model_name` is no name for a folder.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", model_name):
        raise ConfigError(
            f"model_name must consist of letters, digits, '.', '_' and '-' and start with a letter or digit. "
            f"Received: model_name={model_name!r}"
        )
    return Path(registry_dir) / model_name


def versions_in(folder: Path) -> list[int]:
    """Versions in a model's folder, oldest first."""
    with os.scandir(folder) as entries:
        return sorted(int(entry.name) for entry in entries if re.fullmatch("[0-9]+", entry.name) and entry.is_dir())


def _holds(registry_dir: str | Path, model_name: str, version: int, checksums: dict[str, str]) -> bool:
    """Whether a version consists of these files and is sound."""
    try:
        expected = read_manifest(registry_dir, model_name, version)["files"]
        return expected == checksums and not verify(registry_dir, model_name, version)
    except (ModelError, FileNotFoundError):
        return False  # not made by a push, damaged, or just removed as too old: what it holds is not known


def write_version(
    folder: Path,
    source: Path,
    facts: Mapping[str, Any],
    expected: Mapping[str, str] | None = None,
    withdraw: Callable[[dict[str, dict[str, Any]]], None] = lambda withdrawn: None,
) -> int:
    """Copies `source` beside the versions of `folder`, then gives it the next number; returns that.

    Args:
      expected: checksums that the copy must have.
      withdraw: changes what has been taken back, as it stands when the version gets its number.

    Raises:
      ModelError: the copy has other checksums.
    """
    staged = atomic.staging_path(folder / "version")
    staged.mkdir()
    try:
        with locked(staged):  # until it has its name: nobody takes it for the remains of a dead process
            files = _copy_tree(source, staged)
            if expected is not None and files != expected:
                raise ModelError(f"{source}: its files do not match its manifest; see: tokenmill registry verify")
            atomic.sync_tree(staged)
            # The lock lets versions appear one by one; where a file system has none, the rename still fails
            # if another has taken the number.
            with locked(folder):
                while True:
                    version = max(versions_in(folder), default=0) + 1
                    taken_back = _withdrawn_in(folder)
                    withdraw(taken_back)
                    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
                    own = {"version": version, "created": created, "files": files, "withdrawn": taken_back}
                    manifest = {**own, **facts, **own}  # these first, and whatever a copied manifest says of them
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


def _withdrawn_in(folder: Path) -> dict[str, dict[str, Any]]:
    """As the newest version's manifest has it, which took it over from the one before."""
    versions = versions_in(folder) if folder.is_dir() else []
    for version in reversed(versions):
        try:
            found = json.loads((folder / str(version) / MANIFEST_NAME).read_text(encoding="utf-8"))["withdrawn"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # made by hand or damaged: it knows nothing
        if isinstance(found, dict):
            return found
    return {}


def _checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file, by its path relative to `folder`, sorted."""
    checksums = {}
    for name in _files(folder):
        with (folder / name).open("rb") as file:
            checksums[name] = _digest(file, None)
    return checksums


def _copy_tree(source: Path, target: Path) -> dict[str, str]:
    """Copies files and folders but a manifest; returns the checksums of what was written."""
    for parent, _, _ in os.walk(source):
        (target / os.path.relpath(parent, source)).mkdir(exist_ok=True)
    checksums = {}
    for name in _files(source):
        if name == MANIFEST_NAME:
            continue
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
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
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
                with locked(staged, wait=False):
                    shutil.rmtree(staged)


def _last_written(folder: Path) -> float:
    """When a folder or anything in it was last written to, seconds since the epoch."""
    times = [folder.stat().st_mtime]
    for parent, folders, names in os.walk(folder):
        times += (os.stat(os.path.join(parent, name)).st_mtime for name in (*folders, *names))
    return max(times)
