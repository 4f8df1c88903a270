"""The gate's rules: each has a name, a value that was counted, a threshold and a severity."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from components.corpus_gate.counting import Facts

MOST_NAMED = 5
"""Offending documents that a report names, the first by doc_id."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """What is looked at, and when it is too much (or, with `at_least`, too little)."""

    name: str
    meaning: str
    """Of the value, with its unit."""

    threshold: float
    """By default."""

    severity: str
    """By default: block, warn or off."""

    at_least: bool = False
    """The value must be at least the threshold; else at most."""


RULES = {
    rule.name: rule
    for rule in (
        Rule("schema_anomalies", "anomalies that ExampleValidator found", 0, "block"),
        Rule("drift", "features that differ from the last accepted span, beyond the schema's comparators", 0, "warn"),
        Rule("skew", "features that differ from the serving statistics, beyond the schema's comparators", 0, "warn"),
        Rule("num_documents", "documents in all", 10, "block", at_least=True),
        Rule("num_eval_documents", "documents held out for evaluation", 2, "block", at_least=True),
        Rule("invalid_utf8", "documents that are not valid UTF-8", 0, "block"),
        Rule("nul", "documents that hold a NUL character", 0, "block"),
        Rule("replacement_characters", "U+FFFD among all characters, a share", 1e-4, "warn"),
        Rule("empty", "documents without text", 0, "block"),
        Rule("overlong", "documents longer than gate.max_document_bytes", 0, "block"),
        Rule("duplicate_ids", "documents whose doc_id another has, too", 0, "block"),
        Rule("duplicates", "documents whose text an earlier one of the same split has, a share", 0.05, "warn"),
        Rule("leakage", "evaluation documents whose text is also trained on, a share", 0.01, "block"),
    )
}


@dataclasses.dataclass(frozen=True)
class Judged:
    """One rule, applied."""

    name: str
    meaning: str
    value: float
    threshold: float
    severity: str
    passed: bool
    details: list[str]
    """First offending doc_ids, or what TensorFlow Data Validation says."""

    def in_words(self) -> str:
        """One line: what was found, what is allowed, where."""
        relation = "below" if RULES[self.name].at_least else "above"
        where = f": {', '.join(self.details)}" if self.details else ""
        return f"{self.name}: {self.value:g} is {relation} {self.threshold:g} ({self.meaning}){where}"


def judge(facts: Facts, findings: Mapping[str, list[str]], settings: Mapping[str, Mapping[str, Any]]) -> list[Judged]:
    """Applies every rule that is not off.

    Args:
      facts: what was counted in the documents.
      findings: by rule, what was found in the statistics: `schema_anomalies`, `drift`, `skew`.
      settings: by rule, `threshold` and `severity` where they are not the default's.
    """
    values = _values(facts) | {name: (len(found), found[:MOST_NAMED]) for name, found in findings.items()}
    judged = []
    for name, rule in RULES.items():
        setting = settings.get(name, {})
        severity = setting.get("severity", rule.severity)
        if severity == "off":
            continue
        threshold = setting.get("threshold", rule.threshold)
        value, details = values[name]
        passed = value >= threshold if rule.at_least else value <= threshold
        judged.append(Judged(name, rule.meaning, value, threshold, severity, passed, [] if passed else details))
    return judged


def _values(facts: Facts) -> dict[str, tuple[float, list[str]]]:
    """Value and first offenders by rule."""
    held_out = facts.splits.get("eval")
    characters = max(1, sum(split.num_characters for split in facts.splits.values()))
    documents = sum(split.num_documents for split in facts.splits.values())
    values: dict[str, tuple[float, list[str]]] = {
        "num_documents": (documents, []),
        "num_eval_documents": (held_out.num_documents if held_out else 0, []),
        "duplicate_ids": (facts.num_duplicate_ids, facts.duplicate_ids),
        "duplicates": (facts.num_duplicates / max(1, documents), facts.duplicates),
        "leakage": (facts.num_leaked / max(1, held_out.num_documents if held_out else 0), facts.leaked),
    }
    for name in ("invalid_utf8", "nul", "empty", "overlong"):
        counted = sum(split.num_offending[name] for split in facts.splits.values())
        values[name] = (counted, facts.offending(name))
    replaced = sum(split.num_replacement_characters for split in facts.splits.values())
    values["replacement_characters"] = (replaced / characters, facts.offending("replacement_characters"))
    return values
