"""The gate's report: JSON for machines, one page of HTML for people. Everything in it is taken for hostile text."""

import dataclasses
import html
import json
from typing import Any

from components.corpus_gate.counting import Facts, SplitFacts
from components.corpus_gate.rules import Judged

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1b1f24 }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .3rem .6rem; vertical-align: top }
th { border-bottom: 2px solid #d0d7de } td { border-bottom: 1px solid #eaeef2 } td.n, th.n { text-align: right }
.bar { background: #54aeff; height: .8rem; border-radius: 2px } .passed { color: #1a7f37 } .warn { color: #9a6700 }
.block { color: #cf222e; font-weight: 600 } code { font-size: .85em; overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3 } th { border-color: #30363d }
td { border-color: #21262d } .passed { color: #3fb950 } .warn { color: #d29922 } .block { color: #f85149 } }
"""
_MOST_SOURCES = 30


def as_json(span: int, facts: Facts, judged: list[Judged]) -> str:
    """The same facts give the same bytes."""
    # By hand: dataclasses.asdict takes a Counter's items for things to count.
    splits = {
        name: {
            field.name: dict(value) if isinstance(value := getattr(split, field.name), dict) else value
            for field in dataclasses.fields(split)
        }
        for name, split in facts.splits.items()
    }
    report: dict[str, Any] = {
        "span": span,
        "passed": passed(judged),
        "rules": [dataclasses.asdict(rule) for rule in judged],
        "splits": splits,
    }
    return json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def passed(judged: list[Judged]) -> bool:
    """Whether no rule blocks."""
    return all(rule.passed or rule.severity != "block" for rule in judged)


def as_html(title: str, span: int, facts: Facts, judged: list[Judged]) -> str:
    """A page that needs neither scripts nor network."""
    verdict = '<span class="passed">passed</span>' if passed(judged) else '<span class="block">blocked</span>'
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}: corpus, span {span}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}: the corpus of span {span} {verdict}</h1>",
        _rules_table(judged),
    ]
    for name, split in facts.splits.items():
        parts += [
            f"<h2>{html.escape(name)}: {split.num_documents:,} documents, {split.num_bytes:,} bytes</h2>",
            _bars("length in bytes", _lengths(split)),
            _bars("source", _sources(split)),
        ]
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _rules_table(judged: list[Judged]) -> str:
    rows = []
    for rule in judged:
        kind = "passed" if rule.passed else rule.severity
        details = "".join(f"<br><code>{html.escape(detail)}</code>" for detail in rule.details)
        rows.append(
            f'<tr><td class="{kind}">{kind}</td><td>{html.escape(rule.name)}</td><td class="n">{rule.value:g}</td>'
            f'<td class="n">{rule.threshold:g}</td><td>{html.escape(rule.meaning)}{details}</td></tr>'
        )
    head = '<tr><th></th><th>rule</th><th class="n">value</th><th class="n">threshold</th><th>meaning</th></tr>'
    return f"<table>{head}{''.join(rows)}</table>"


def _bars(label: str, counts: list[tuple[str, int]]) -> str:
    largest = max((count for _, count in counts), default=1) or 1
    rows = [
        f'<tr><td>{html.escape(name)}</td><td class="n">{count:,}</td>'
        f'<td style="width:60%"><div class="bar" style="width:{100 * count / largest:.1f}%"></div></td></tr>'
        for name, count in counts
    ]
    return f'<table><tr><th>{label}</th><th class="n">documents</th><th></th></tr>{"".join(rows)}</table>'


def _lengths(split: SplitFacts) -> list[tuple[str, int]]:
    """One bar for each power of two from the shortest to the longest, empty ones among them."""
    if not split.length_histogram:
        return []
    digits = range(min(split.length_histogram), max(split.length_histogram) + 1)
    return [(_range_of(number), split.length_histogram[number]) for number in digits]


def _range_of(digits: int) -> str:
    if digits < 2:
        return str(digits)
    return f"{1 << (digits - 1):,} to {(1 << digits) - 1:,}"


def _sources(split: SplitFacts) -> list[tuple[str, int]]:
    """The largest first; what is beyond the page's measure is added up."""
    ordered = sorted(split.documents_by_source.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in ordered[_MOST_SOURCES:])
    return ordered[:_MOST_SOURCES] + ([(f"{len(ordered) - _MOST_SOURCES} others", rest)] if rest else [])
