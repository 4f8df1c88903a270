"""Going back to an earlier version, or on to a later one, by publishing its files again under a new number.

TensorFlow Serving takes the largest number in a folder. Were an earlier version served by a pointer, every server
would have to be told of it, and one that was not would serve what was taken back. So version 5 becomes what version
3 was, `restored` in its manifest says so, and nothing is deleted. What was rolled back is remembered by its digest
in every later manifest (`withdrawn`): a pipeline that runs again does not push it again; `promote` forgets it.
"""

import datetime
from pathlib import Path
from typing import Any, Literal

from components.registry_pusher import registry
from components.registry_pusher.registry import Push
from foundation.errors import HostError, ModelError


def origin(registry_dir: str | Path, model_name: str, version: int) -> int:
    """The version whose files these are: itself, but for one that was published again."""
    try:
        restored = registry.read_manifest(registry_dir, model_name, version).get("restored")
    except ModelError:
        return version  # its manifest is lost: what is not known to be another's is its own
    return int(restored["version"]) if isinstance(restored, dict) else version


def predecessor(registry_dir: str | Path, model_name: str, served: int) -> int | None:
    """The version to which a rollback goes: the newest before the served model's own that holds another one.

    What was taken back is passed over. None if there is none.
    """
    files = _files(registry_dir, model_name, served)
    taken_back = registry.withdrawn(registry_dir, model_name)
    before = origin(registry_dir, model_name, served)
    for version in reversed(registry.list_versions(registry_dir, model_name)):
        held = _files(registry_dir, model_name, version)
        if version < before and held and held != files and registry.digest_of(held) not in taken_back:
            return version
    return None


def rollback(registry_dir: str | Path, model_name: str, version: int | None = None, reason: str = "") -> Push:
    """Serves an earlier version again, and takes back what is served now.

    Args:
      version: to go back to; the one before the served one if not given.
      reason: for the manifest.

    Raises:
      ModelError: there is no such version or none before; it is damaged; it holds what is served already.
      HostError: the registry cannot be written to.
    """
    served = _served(registry_dir, model_name)
    if version is None:
        version = predecessor(registry_dir, model_name, served)
        if version is None:
            raise ModelError(f"{registry_dir}/{model_name}: no version before {served} is left to go back to")
    elif version >= served:
        raise ModelError(
            f"{registry_dir}/{model_name}: {version} is not before the served version {served}; to serve a version "
            f"that is not: tokenmill registry promote {version}"
        )
    return _republish(registry_dir, model_name, version, served, "rollback", reason)


def promote(registry_dir: str | Path, model_name: str, version: int, reason: str = "") -> Push:
    """Serves any version again; nothing is taken back, and if this one was, that is forgotten.

    Raises:
      ModelError, HostError: as `rollback`.
    """
    return _republish(registry_dir, model_name, version, _served(registry_dir, model_name), "promote", reason)


def _republish(
    registry_dir: str | Path,
    model_name: str,
    version: int,
    served: int,
    action: Literal["rollback", "promote"],
    reason: str,
) -> Push:
    manifest = registry.read_manifest(registry_dir, model_name, version)
    faults = registry.verify(registry_dir, model_name, version)
    if faults:
        raise ModelError(
            f"{registry_dir}/{model_name}/{version}: damaged: {'; '.join(faults[:3])}; take another version"
        )
    files, served_files = manifest["files"], _files(registry_dir, model_name, served)
    folder = registry.model_folder(registry_dir, model_name)
    if files == served_files and not registry.verify(registry_dir, model_name, served):
        return Push(served, folder / str(served), is_new=False)
    when = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")

    def withdraw(taken_back: dict[str, dict[str, Any]]) -> None:
        taken_back.pop(registry.digest_of(files), None)
        if action == "rollback" and served_files:
            number = origin(registry_dir, model_name, served)
            taken_back[registry.digest_of(served_files)] = {"version": number, "when": when, "reason": reason}

    facts = {
        **manifest,
        "restored": {
            "action": action,
            "version": origin(registry_dir, model_name, version),
            "instead_of": served,
            "when": when,
            "reason": reason,
        },
    }
    try:
        made = registry.write_version(folder, folder / str(version), facts, files, withdraw)
    except OSError as error:
        raise HostError(f"{folder}: no version can be written: {error}; free space or mend access") from error
    return Push(made, folder / str(made), is_new=True)


def _served(registry_dir: str | Path, model_name: str) -> int:
    served = registry.newest_version(registry_dir, model_name)
    if served is None:
        raise ModelError(f"{registry_dir}/{model_name}: holds no version; run: tokenmill run --config FILE")
    return served


def _files(registry_dir: str | Path, model_name: str, version: int) -> dict[str, str]:
    """Checksums as the manifest has them; none for one without."""
    try:
        files: dict[str, str] = registry.read_manifest(registry_dir, model_name, version)["files"]
    except ModelError:
        return {}
    return files
