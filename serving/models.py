"""The versions of a model: loads the newest sound one, and follows the registry.

A newer version is loaded and tried beside the old one, then takes its place at once. Requests hold on to the version
they began with, so the old one is freed after the last of them and none fails.
"""

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.registry_pusher import registry
from foundation.errors import ModelError, TokenmillError
from foundation.export_files import check_files
from serving.failures import Draining, NotFound
from serving.metrics import Metrics

LOG = logging.getLogger("tokenmill.serving")

LOADING, AVAILABLE, END = "LOADING", "AVAILABLE", "END"
"""States of a version, as TensorFlow Serving names them."""


class LoadedModel:
    """One version in memory."""

    def __init__(self, version: int, folder: Path):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 - registers the tokenizer's op

        self.version = version
        try:
            check_files(folder)
            self._model = tf.saved_model.load(str(folder))
        except (OSError, ValueError, tf.errors.OpError) as error:
            raise ModelError(f"{folder}: cannot be loaded ({error}); push the model again") from error
        self._signatures: dict[str, Any] = dict(self._model.signatures)
        if "serving_default" not in self._signatures:
            raise ModelError(f"{folder}: has no signature serving_default; push a model of this Tokenmill")

    @property
    def signature_names(self) -> list[str]:
        return sorted(self._signatures)

    def inputs_of(self, signature: str) -> dict[str, Any]:
        """TensorSpecs of a signature's inputs, by name.

        Raises:
          NotFound: there is no such signature.
        """
        specs: dict[str, Any] = self._find(signature).structured_input_signature[1]
        return specs

    def outputs_of(self, signature: str) -> dict[str, Any]:
        """As `inputs_of`."""
        specs: dict[str, Any] = self._find(signature).structured_outputs
        return specs

    def call(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a signature on arrays or tensors; returns tensors."""
        import tensorflow as tf

        function = self._find(signature)
        specs = function.structured_input_signature[1]
        tensors = {name: tf.convert_to_tensor(value, specs[name].dtype) for name, value in inputs.items()}
        outputs: dict[str, Any] = function(**tensors)
        return outputs

    def call_numpy(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """As `call`, with arrays as outputs."""
        return {name: value.numpy() for name, value in self.call(signature, inputs).items()}

    def _find(self, signature: str) -> Any:
        try:
            return self._signatures[signature]
        except KeyError:
            known = ", ".join(self.signature_names)
            raise NotFound(f"no signature {signature!r}; the model has: {known}") from None


def try_out(model: LoadedModel) -> None:
    """One answer of a token: what the first call costs is paid before any client waits for it."""
    request = {"prompt": b"", "max_new_tokens": 1, "temperature": 0.0, "top_k": 0, "top_p": 1.0}
    inputs = {name: [value] for name, value in {**request, "repetition_penalty": 1.0, "seed": 0}.items()}
    if inputs.keys() == model.inputs_of("serving_default").keys():
        model.call("serving_default", inputs)


@dataclass(frozen=True)
class VersionStatus:
    """What is known of a version."""

    version: int
    state: str
    error: str = ""


class Models:
    """The version that is served now, and the watch for the next."""

    def __init__(self, registry_dir: Path, model_name: str, metrics: Metrics):
        self.model_name = model_name
        self._registry, self._metrics = registry_dir, metrics
        self._current: LoadedModel | None = None
        self._statuses: dict[int, VersionStatus] = {}
        self._refused: dict[int, int] = {}
        self._stop = threading.Event()
        self._watch: threading.Thread | None = None

    def get(self, name: str, version: int | None) -> LoadedModel:
        """The model a request asks for; whoever holds it keeps it in memory.

        Raises:
          NotFound: another model or a version that is not served.
          Draining: nothing is loaded yet.
        """
        if name != self.model_name:
            raise NotFound(f"no model {name!r}; this server has {self.model_name!r}")
        current = self._current
        if current is None:
            raise Draining("no version is loaded yet")
        if version is not None and version != current.version:
            raise NotFound(f"version {version} of {name!r} is not served; version {current.version} is")
        return current

    def statuses(self, name: str, version: int | None = None) -> list[VersionStatus]:
        """Newest first.

        Raises:
          NotFound: another model, or a version never seen.
        """
        if name != self.model_name:
            raise NotFound(f"no model {name!r}; this server has {self.model_name!r}")
        found = sorted(self._statuses.values(), key=lambda status: -status.version)
        if version is not None:
            found = [status for status in found if status.version == version]
            if not found:
                raise NotFound(f"version {version} of {name!r} was never served here")
        return found

    def refresh(self) -> bool:
        """Looks for a newer version and, if there is a sound one, serves it; whether it did."""
        current = self._current.version if self._current else 0
        withdrawn = registry.withdrawn(self._registry, self.model_name)
        for version in reversed(registry.list_versions(self._registry, self.model_name)):
            if version <= current:
                break
            folder = registry.version_folder(self._registry, self.model_name, version)
            written = _fingerprint(folder)
            if self._refused.get(version) == written:
                continue  # nothing has changed since it was refused
            try:
                self._check(version, withdrawn)
                self._set(version, LOADING)
                model = LoadedModel(version, folder)
                try_out(model)
            except (TokenmillError, OSError) as error:
                LOG.warning("version %d is ignored: %s", version, error)
                self._refused[version] = written
                self._set(version, END, str(error))
                continue
            previous, self._current = self._current, model
            self._set(version, AVAILABLE)
            self._metrics.version.set(version)
            if previous:
                self._set(previous.version, END)
            LOG.info("serving version %d", version)
            return True
        return False

    def watch(self, every_s: float) -> None:
        """Refreshes in a thread of its own until `close`."""

        def run() -> None:
            while not self._stop.wait(every_s):
                try:
                    self.refresh()
                except Exception:  # the old version is served on, and the next look may succeed
                    LOG.exception("the registry could not be read")

        self._watch = threading.Thread(target=run, name="registry-watch", daemon=True)
        self._watch.start()

    def close(self) -> None:
        """Ends the watch."""
        self._stop.set()
        if self._watch:
            self._watch.join(timeout=10)

    def _check(self, version: int, withdrawn: Mapping[str, Any]) -> None:
        faults = registry.verify(self._registry, self.model_name, version)
        if faults:
            raise ModelError(f"damaged or half-written: {'; '.join(faults[:3])}")
        manifest = registry.read_manifest(self._registry, self.model_name, version)
        if registry.digest_of(manifest["files"]) in withdrawn:
            raise ModelError("it was rolled back")

    def _set(self, version: int, state: str, error: str = "") -> None:
        self._statuses[version] = VersionStatus(version, state, error)


def _fingerprint(folder: Path) -> int:
    """Changes when a file in the folder does."""
    facts = []
    for parent, _, names in os.walk(folder):
        for name in names:
            stat = os.stat(os.path.join(parent, name))
            facts.append((parent, name, stat.st_size, stat.st_mtime_ns))
    return hash(tuple(sorted(facts)))
