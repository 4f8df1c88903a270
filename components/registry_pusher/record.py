"""Where a version comes from: the facts that its manifest keeps."""

import dataclasses
import importlib.metadata
import json
import math
import platform
from pathlib import Path
from typing import Any

from tfx.types.artifact import Artifact

from components.evaluator.results import SliceMetrics, load_results, load_verdict
from foundation.errors import ModelError

MODEL_DESCRIPTION = Path("assets.extra") / "tokenmill.json"
"""Where the exported model describes itself."""

_PACKAGES = ("tensorflow", "tfx", "tensorflow-text")


def facts_of(
    model_folder: str | Path, inputs: dict[str, list[Artifact]], code_hash: str, recipe: str = ""
) -> dict[str, Any]:
    """Facts for the manifest.

    Args:
      model_folder: the SavedModel.
      inputs: the pusher's input artifacts by channel; empty channels are left out.
      code_hash: of the pusher's code.
      recipe: fingerprint of everything that decides the model.

    Raises:
      ModelError: the model's description, or the evaluation, is damaged.
    """
    present = {channel: artifacts[0] for channel, artifacts in inputs.items() if artifacts}
    return {
        "model": _description(Path(model_folder) / MODEL_DESCRIPTION),
        "evaluation": _evaluation(present),
        "baseline": _baseline(present),
        "data": _data(present),
        "recipe": recipe or None,
        "lineage": {
            channel: {"id": artifact.id, "type": artifact.type_name, "uri": artifact.uri}
            for channel, artifact in sorted(present.items())
        },
        "code_hash": code_hash,
        "packages": {
            "python": platform.python_version(),
            **{package: importlib.metadata.version(package) for package in _PACKAGES},
        },
    }


def _description(path: Path) -> Any:
    """The model's description of itself; None for a model that brings none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ModelError(f"{path} is not JSON ({error}); export the model again") from error


def _evaluation(present: dict[str, Artifact]) -> dict[str, Any] | None:
    """Verdict and metrics; None where there was no evaluation."""
    if "evaluation" not in present:
        return None
    uri = present["evaluation"].uri
    results = load_results(uri)
    record: dict[str, Any] = {
        "overall": _metrics(results.overall),
        "by_source": [_metrics(each) for each in results.by_source],
        "by_length": [_metrics(each) for each in results.by_length],
        "rebaselined": results.rebaselined,
        "baseline": _metrics(results.baseline.overall) if results.baseline else None,
    }
    if "model_blessing" in present:
        record["verdict"] = dataclasses.asdict(load_verdict(uri, present["model_blessing"].uri))
    return record


def _baseline(present: dict[str, Artifact]) -> dict[str, Any] | None:
    """The version that the model was compared with; None for the first."""
    if "baseline_model" not in present:
        return None
    baseline = present["baseline_model"]
    return {
        "version": baseline.get_int_custom_property("registry_version"),
        "digest": baseline.get_string_custom_property("model_digest"),
    }


def _data(present: dict[str, Artifact]) -> dict[str, Any]:
    """Span of the documents, and the ledger of each split: what came in, was packed, was dropped."""
    data: dict[str, Any] = {}
    if "examples" in present:
        data["span"] = int(present["examples"].get_custom_property("span") or 0)
    for split in ("train", "eval") if "rows" in present else ():
        path = Path(present["rows"].uri) / f"Split-{split}" / "packing.json"
        if path.exists():
            manifest = json.loads(path.read_text(encoding="utf-8"))
            data[split] = {"num_rows": manifest.get("num_rows"), "ledger": manifest.get("ledger")}
    return data


def _metrics(measured: SliceMetrics) -> dict[str, Any]:
    """JSON has no NaN: a quotient of nothing is null."""
    values = dataclasses.asdict(measured)
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }
