"""What a run came to, gathered from its artifacts."""

import dataclasses
from typing import Any

from components.evaluator.results import load_results, load_verdict
from runners.local.launcher import Outputs


def summarize(outputs: dict[str, Outputs]) -> dict[str, Any]:
    """Fields of the event `summary`; what a partial run did not touch is left out.

    Returns:
      `overall` and `slices` (fields of SliceMetrics), `blessed`, `reasons`; `pushed`, `destination`, `version`.
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
        }
    pusher = outputs.get("RegistryPusher")
    if pusher:
        pushed = pusher["pushed_model"][0]
        summary |= {
            "pushed": bool(pushed.get_int_custom_property("pushed")),
            "destination": pushed.get_string_custom_property("pushed_destination"),
            "version": pushed.get_string_custom_property("pushed_version"),
        }
    return summary
