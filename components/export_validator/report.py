"""The report on an export: `report.json` for machines, one page and one line for people."""

import html
import json
from pathlib import Path
from typing import Any

from foundation.errors import ModelError

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1b1f24 }
h1 { font-size: 1.4rem } table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .3rem .6rem; vertical-align: top; border-bottom: 1px solid #eaeef2 }
td.n, th.n { text-align: right } .passed { color: #1a7f37 } .failed { color: #cf222e; font-weight: 600 }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85em; margin: .3rem 0 }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3 } th, td { border-color: #30363d }
.passed { color: #3fb950 } .failed { color: #f85149 } }
"""

MEANINGS = {
    "files": "files and tokenizer are those that the trainer wrote",
    "load": "the model loads without this project's code, whole",
    "tokens": "texts get the ids of the trainer's rows",
    "round_trip": "tokenized and detokenized, text is the same bytes",
    "trainer": "-log p of the trainer's rows is what the trainer's forward pass says",
    "score": "scores of long texts are the sum over windows",
    "cached": "generation by the cache sees the logits of a plain forward pass",
    "batched": "a row answers the same alone and beside others",
    "streamed": "an answer in parts is the answer in one",
    "times": "every signature answers within the limit",
}
"""What each check of `checks.py` proves, in their order."""


REPORT_NAME = "report.json"


def load_report(blessing: str | Path) -> dict[str, Any]:
    """The report that lies in a blessing's folder.

    Raises:
      ModelError: there is none, or it is damaged.
    """
    path = Path(blessing) / REPORT_NAME
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: no report on an export ({error}); run ExportValidator again") from error
    return found


def in_words(found: dict[str, Any]) -> str:
    """One line: the verdict and, of a check that failed, what it found."""
    failed = [check for check in found["checks"] if not check["passed"]]
    if not failed:
        return f"the export passes {len(found['checks'])} checks"
    first = failed[0]
    others = f" ({len(failed) - 1} more)" if len(failed) > 1 else ""
    return f"the export is not valid and will not be pushed: {first['name']}: {first['found'].splitlines()[0]}{others}"


def as_html(title: str, found: dict[str, Any]) -> str:
    """A page that needs neither scripts nor network. Everything in the report is taken for hostile text."""
    kind = "passed" if found["passed"] else "failed"
    rows = "\n".join(_row(check) for check in found["checks"])
    memory = "" if found["memory_mib"] is None else f"<p>Memory taken by loading: {found['memory_mib']:,} MiB.</p>"
    times = ", ".join(f"{html.escape(name)} {value} s" for name, value in found["seconds"].items() if value is not None)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}: export</title><style>{_STYLE}</style></head><body>\n"
        f'<h1>{html.escape(title)}: the export <span class="{kind}">{kind}</span></h1>\n'
        '<table><tr><th></th><th>check</th><th class="n">seconds</th><th>what it proves, what it found</th></tr>\n'
        f"{rows}\n</table>{memory}<p>Times: {times}.</p></body></html>\n"
    )


def _row(check: dict[str, Any]) -> str:
    kind = "passed" if check["passed"] else "failed"
    example = check["example"]
    shown = "" if example is None else f"<pre>{html.escape(json.dumps(example, indent=1, ensure_ascii=False))}</pre>"
    return (
        f'<tr><td class="{kind}">{kind}</td><td>{html.escape(check["name"])}</td>'
        f'<td class="n">{check["seconds"]:.1f}</td><td>{MEANINGS[check["name"]]}<br>'
        f"{html.escape(check['found'])}{shown}</td></tr>"
    )
