"""Which version of the registry is the baseline of a run."""

from pathlib import Path

from components.registry_pusher import registry
from foundation.errors import ModelError

NONE = "none"
"""The choice of no baseline."""


def choose(registry_dir: str | Path, model_name: str, recipe: str, rebaseline: bool = False) -> str:
    """The served version, as `VERSION:DIGEST`; or `NONE`.

    Where the served version came of this very recipe, a run that repeats it would judge the model against itself, or
    start a warm start from its own result. It gets the baseline that the first run had; and none if that run
    accepted its model on purpose, since with that the model became the baseline itself.

    Args:
      recipe: fingerprint of everything that decides the model; empty if it is not known.
      rebaseline: whether this run, too, accepts its model on purpose.
    """
    served = registry.newest_version(registry_dir, model_name)
    if served is None:
        return NONE
    try:
        manifest = registry.read_manifest(registry_dir, model_name, served)
    except ModelError:
        return f"{served}:"  # refused when its files are read
    if not recipe or manifest.get("recipe") != recipe:
        return f"{served}:{registry.digest_of(manifest['files'])}"
    if (manifest.get("evaluation") or {}).get("rebaselined") and not rebaseline:
        return NONE
    before = manifest.get("baseline")
    if not before:
        return NONE
    try:
        files = registry.read_manifest(registry_dir, model_name, before["version"])["files"]
    except ModelError:
        return NONE  # too old to be kept
    return f"{before['version']}:{registry.digest_of(files)}"
