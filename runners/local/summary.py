"""What a run came to, gathered from its artifacts."""

import dataclasses
import os
from typing import Any

from tfx.utils import path_utils

from components.evaluation_report.artifact import PAGE
from components.evaluator.results import load_results, load_verdict
from components.export_validator.report import in_words, load_report
from components.registry_pusher.executor import OUTCOME_KEY
from runners.local.launcher import Outputs


def summarize(outputs: dict[str, Outputs]) -> dict[str, Any]:
    """Fields of the event `summary`; what a partial run did not touch is left out.

    Returns:
      `overall` and `slices` (fields of SliceMetrics), `blessed`, `reasons`; `model`: folder of the trained model;
      `report`: the page; `export_valid` and `export` (what ExportValidator found, in one line); `outcome` (of
      RegistryPusher), `destination`, `version`.
    """
    summary: dict[str, Any] = {}
    evaluator = outputs.get("Evaluator")
    if evaluator:
        results = load_results(evaluator["evaluation"][0].uri)
        verdict = load_verdict(evaluator["evaluation"][0].uri, evaluator["blessing"][0].uri)
        summary |= {
            "overall": dataclasses.asdict(results.overall),
            "slices": [dataclasses.asdict(part) for part in results.by_source],
            "blessed": verdict.blessed,
            "reasons": list(verdict.reasons),
            "baseline": dataclasses.asdict(results.baseline.overall) if results.baseline else None,
        }
    trainer = outputs.get("DistributedTrainer")
    if trainer:
        summary["model"] = path_utils.serving_model_dir(trainer["model"][0].uri)
    report = outputs.get("EvaluationReport")
    if report:
        summary["report"] = os.path.join(report["report"][0].uri, PAGE)
    validator = outputs.get("ExportValidator")
    if validator:
        found = load_report(validator["blessing"][0].uri)
        summary |= {"export_valid": found["passed"], "export": in_words(found)}
    pusher = outputs.get("RegistryPusher")
    if pusher:
        pushed = pusher["pushed_model"][0]
        summary |= {
            "outcome": pushed.get_string_custom_property(OUTCOME_KEY),
            "destination": pushed.get_string_custom_property("pushed_destination"),
            "version": pushed.get_string_custom_property("pushed_version"),
        }
    return summary
