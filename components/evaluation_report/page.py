"""The page. Everything on it is taken for hostile text: sources, reasons, and what a model writes."""

import dataclasses
import html
import json
import math
from typing import Any

from components.evaluation_report import plots
from components.evaluation_report.samples import Sample
from components.evaluator.results import EvaluationResults, SliceMetrics, Verdict

_MOST_SOURCES = 25
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 58rem; padding: 0 1rem; color: #1b1f24 }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2.2rem } .yes { color: #1a7f37 } .no { color: #cf222e }
table { margin-top: .8rem; border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
.wide { overflow-x: auto } th, td { padding: .3rem .45rem; text-align: right; border-bottom: 1px solid #eaeef2 }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; min-width: 7rem }
th { border-bottom: 2px solid #d0d7de }
svg { width: 100%; height: auto } svg text { font: 11px system-ui, sans-serif; fill: #57606a }
.grid { stroke: #eaeef2 } .line { fill: none; stroke-width: 2 } .line.candidate { stroke: #0969da }
.line.validation { stroke: #bc4c00 } .dot.candidate { fill: none } .dot.validation { fill: #bc4c00 }
rect.candidate, .key.candidate { fill: #0969da; background: #0969da } .key.validation { background: #bc4c00 }
rect.baseline, .key.baseline { fill: #afb8c1; background: #afb8c1 } .axis { color: #57606a; margin-left: 1rem }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin: 0 .35rem 0 .8rem }
.legend { margin: .2rem 0 0 } .thin { color: #57606a }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f8fa; padding: .7rem; border-radius: 6px }
pre b { color: #57606a; font-weight: 600 }
@media (prefers-color-scheme: dark) {
body { background: #0d1117; color: #e6edf3 } pre { background: #161b22 } th, td { border-color: #21262d }
.grid { stroke: #21262d } svg text, .axis, .thin, pre b { fill: #9198a1; color: #9198a1 } .yes { color: #3fb950 }
.no { color: #f85149 } rect.candidate, .key.candidate { fill: #4493f8; background: #4493f8 }
.line.candidate { stroke: #4493f8 } rect.baseline, .key.baseline { fill: #565d66; background: #565d66 } }
"""


@dataclasses.dataclass(frozen=True)
class Report:
    """What is on a page."""

    title: str
    verdict: Verdict
    results: EvaluationResults
    log: list[dict[str, Any]]
    """Lines of the training log."""

    samples: list[Sample]


def as_json(report: Report) -> str:
    """The same facts for machines; what is not a finite number is null."""
    return json.dumps(_plain(dataclasses.asdict(report)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_html(report: Report) -> str:
    """One page."""
    title = html.escape(report.title)
    results = report.results
    said = '<span class="yes">blessed</span>' if report.verdict.blessed else '<span class="no">not blessed</span>'
    reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in report.verdict.reasons)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}: evaluation</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}: the model is {said}</h1><ul>{reasons}</ul>",
            "<h2>Held-out documents</h2>",
            "" if results.baseline else '<p class="thin">There was no baseline to compare with.</p>',
            _table("length", _all(results) + _by_length(results)),
            f"<h2>Bits per byte by slice</h2>{_bars(results)}",
            _table("source", _by_source(results)) if results.by_source else "",
            f"<h2>Training</h2>{_loss_curve(report.log)}",
            f"<h2>Samples</h2>{_samples(report.samples)}",
            "</body></html>",
        ]
    )


_Pair = tuple[str, SliceMetrics, SliceMetrics | None]


def _all(results: EvaluationResults) -> list[_Pair]:
    return [("all", results.overall, results.baseline.overall if results.baseline else None)]


def _by_length(results: EvaluationResults) -> list[_Pair]:
    return _paired(results.by_length, results.baseline.by_length if results.baseline else ())


def _by_source(results: EvaluationResults) -> list[_Pair]:
    """The largest sources; the rest is in report.json."""
    largest = sorted(results.by_source, key=lambda part: (-part.num_bytes, part.source))[:_MOST_SOURCES]
    return _paired(tuple(largest), results.baseline.by_source if results.baseline else ())


def _paired(parts: tuple[SliceMetrics, ...], before: tuple[SliceMetrics, ...]) -> list[_Pair]:
    found = {part.source: part for part in before}
    return [(part.source or "(no source)", part, found.get(part.source)) for part in parts]


def _table(heading: str, pairs: list[_Pair]) -> str:
    compared = any(before for _, _, before in pairs)
    head = ["documents", "tokens", "bytes", "perplexity", "accuracy", "bits per byte"]
    head += ["baseline", "change"] if compared else []
    rows = []
    for name, part, before in pairs:
        cells = [
            f"{part.num_documents:,}",
            f"{part.num_tokens:,}",
            f"{part.num_bytes:,}",
            _number(part.perplexity, ",.2f"),
            _number(part.token_accuracy, ".1%"),
            _number(part.bits_per_byte, ".4f"),
        ]
        if compared:
            was = before.bits_per_byte if before else math.nan
            cells += [_number(was, ".4f"), _number(part.bits_per_byte - was, "+.4f")]
        rows.append(f"<tr><td>{html.escape(name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    names = "".join(f"<th>{name}</th>" for name in head)
    return f'<div class="wide"><table><tr><th>{heading}</th>{names}</tr>{"".join(rows)}</table></div>'


def _bars(results: EvaluationResults) -> str:
    pairs = _all(results) + _by_length(results) + _by_source(results)
    rows = [
        (name, part.bits_per_byte, before.bits_per_byte if before else None)
        for name, part, before in pairs
        if part.num_bytes
    ]
    return plots.bars(rows, ("this model", "baseline"))


def _loss_curve(log: list[dict[str, Any]]) -> str:
    training = [(line["step"], line["loss"]) for line in log if line.get("loss") is not None]
    validation = [(line["step"], line["validation_loss"]) for line in log if line.get("validation_loss") is not None]
    series = (("training", "candidate", training), ("validation", "validation", validation))
    return plots.curves(series, "step", "loss in nats per token")


def _samples(samples: list[Sample]) -> str:
    if not samples:
        return '<p class="thin">The model has no signature that generates, or no document was held out.</p>'
    about = '<p class="thin">Beginnings of held-out documents (bold) and what the model made of them.</p>'
    return about + "".join(
        f"<pre><b>{html.escape(sample.prompt)}</b>{html.escape(sample.continuation)}</pre>" for sample in samples
    )


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
