"""A copy of a model's versions in an object store, which servers elsewhere watch.

An object store has no rename, so it cannot be the registry itself: numbers are given out and versions made whole in
the local folder, and this follows. There `saved_model.pb` is written last and removed first. Without it TensorFlow
Serving cannot load a version: it tries again and goes on serving the one before. So whatever is killed when, nothing
half is served, and the next call completes it.

Paths go through TensorFlow's file system: `gs://` is built in; others, such as `s3://`, where a plug-in
(tensorflow-io) has been imported; or a mounted folder.
"""

import contextlib
import json
from pathlib import Path

import tensorflow as tf

from components.registry_pusher import registry
from components.registry_pusher.registry import MANIFEST_NAME
from foundation.errors import HostError

_LAST = "saved_model.pb"


def mirror(registry_dir: str | Path, model_name: str, target: str) -> list[int]:
    """Makes `target/model_name` hold the versions that the registry holds: adds the oldest first, then removes.

    Returns:
      The versions added.

    Raises:
      HostError: the store cannot be read or written.
    """
    place = f"{target.rstrip('/')}/{model_name}"
    versions = registry.list_versions(registry_dir, model_name)
    try:
        tf.io.gfile.makedirs(place)
        added = [version for version in versions if _add(registry_dir, model_name, version, f"{place}/{version}")]
        names = [name.rstrip("/") for name in tf.io.gfile.listdir(place)]
        for name in names:
            if name.isdigit() and int(name) not in versions:
                _remove(f"{place}/{name}")
    except (tf.errors.OpError, OSError) as error:
        raise HostError(
            f"{place}: the mirror of the registry cannot be brought up to date ({error}); the registry itself is. Mend "
            "access (registry.mirror) and run: tokenmill registry mirror"
        ) from error
    return added


def _add(registry_dir: str | Path, model_name: str, version: int, place: str) -> bool:
    """Copies a version unless it is there whole; gives whether it did."""
    folder = registry.version_folder(registry_dir, model_name, version)
    manifest = (folder / MANIFEST_NAME).read_bytes()
    if tf.io.gfile.exists(f"{place}/{_LAST}"):
        if _read(f"{place}/{MANIFEST_NAME}") == manifest:
            return False
        tf.io.gfile.remove(f"{place}/{_LAST}")  # another model under this number: not loadable from here on
    names = sorted(json.loads(manifest)["files"])
    for name in (MANIFEST_NAME, *(name for name in names if name != _LAST), _LAST):
        copy = f"{place}/{name}"
        tf.io.gfile.makedirs(copy.rsplit("/", 1)[0])
        if tf.io.gfile.exists(copy):  # of a copy that was stopped; not every store overwrites
            tf.io.gfile.remove(copy)
        tf.io.gfile.copy(str(folder / name), copy)
        size = tf.io.gfile.stat(copy).length
        if size != (folder / name).stat().st_size:
            raise OSError(f"{copy}: {size} bytes arrived of {(folder / name).stat().st_size}")
    return True


def _remove(place: str) -> None:
    if tf.io.gfile.exists(f"{place}/{_LAST}"):
        tf.io.gfile.remove(f"{place}/{_LAST}")
    manifest = _read(f"{place}/{MANIFEST_NAME}")
    for name in (*(json.loads(manifest)["files"] if manifest else ()), MANIFEST_NAME):
        if tf.io.gfile.exists(f"{place}/{name}"):
            tf.io.gfile.remove(f"{place}/{name}")
    with contextlib.suppress(tf.errors.NotFoundError):  # where folders are only parts of names, they are gone by now
        tf.io.gfile.rmtree(place)


def _read(path: str) -> bytes | None:
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, "rb") as file:
        content: bytes = file.read()
    return content
