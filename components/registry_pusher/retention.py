"""Which versions stay in the registry, and the end of those that do not."""

import contextlib
import shutil
from pathlib import Path

from components.registry_pusher import rollback
from components.registry_pusher.registry import locked, model_folder, versions_in
from foundation import atomic
from foundation.errors import ConfigError


def remove_old(registry_dir: str | Path, model_name: str, keep_versions: int, served: int | None = None) -> list[int]:
    """Removes all but the newest `keep_versions`, never the served version nor the one before it.

    The one before it is also the version to which a rollback would go, where an earlier one has changed the order.

    Args:
      served: the version that is served; the newest if not given.

    Returns:
      The versions removed.
    """
    if keep_versions < 1:
        raise ConfigError(f"keep_versions must be at least 1. Received: keep_versions={keep_versions}")
    folder = model_folder(registry_dir, model_name)
    if not folder.is_dir():
        return []
    doomed = []
    with locked(folder):
        versions = versions_in(folder)
        if not versions:
            return []
        served = versions[-1] if served is None else served
        before = {version for version in versions if version < served}
        target = rollback.predecessor(registry_dir, model_name, served)
        kept = {*versions[-keep_versions:], served, max(before, default=served), served if target is None else target}
        removed = [version for version in versions if version not in kept]
        for version in removed:
            # Out of serving's sight in one step; file by file once nobody waits for the lock.
            doomed.append(atomic.staging_path(folder / str(version)))
            (folder / str(version)).rename(doomed[-1])
    for remains in doomed:
        # A push that finds them old enough may be removing them already.
        with contextlib.suppress(FileNotFoundError), locked(remains):
            shutil.rmtree(remains)
    return removed
