"""The page: what is on it, and that nothing on it can do more than be read."""

import html.parser
import json
import math
import re

import pytest

from components.evaluation_report import plots
from components.evaluation_report.page import Report, as_html, as_json
from components.evaluation_report.samples import Sample
from components.evaluator.results import EvaluationResults, SliceMetrics, Verdict

HOSTILE = "</pre><script>alert('x')</script><img src=x onerror=\"y\">&amp;"


class _Reader(html.parser.HTMLParser):
    """Collects tags, attributes and text, as a browser would see them."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


def _metrics(source: str, bits_per_byte: float, num_documents: int = 3) -> SliceMetrics:
    return SliceMetrics(
        source=source,
        perplexity=12.5,
        bits_per_byte=bits_per_byte,
        token_accuracy=0.25,
        num_tokens=500,
        num_bytes=1000,
        num_documents=num_documents,
        num_not_finite=0,
    )


def _report(**changes) -> Report:
    before = EvaluationResults(_metrics("", 2.5), (_metrics("wiki", 2.25),))
    values = {
        "title": "toy",
        "verdict": Verdict(False, ["overall: too bad"]),
        "results": EvaluationResults(_metrics("", 2.0), (_metrics("wiki", 1.75), _metrics("new", 3.0)), before),
        "log": [{"step": 1, "loss": 5.0}, {"step": 2, "loss": 4.0}, {"step": 2, "validation_loss": 4.5}],
        "samples": [Sample("Once", " upon a time")],
        **changes,
    }
    return Report(**values)


def test_the_page_says_what_was_found():
    seen = _Reader(as_html(_report()))
    assert "the model is not blessed" in seen.text and "overall: too bad" in seen.text
    assert "2.0000" in seen.text and "2.5000" in seen.text and "-0.5000" in seen.text  # model, baseline, change
    assert "1.7500" in seen.text and "2.2500" in seen.text
    assert "Once upon a time" in seen.text
    assert {"svg", "polyline", "rect"} <= seen.tags


def test_everything_is_escaped():
    """Sources, reasons, prompts and what the model wrote: each is seen as it is and is no tag."""
    page = as_html(
        _report(
            title=HOSTILE,
            verdict=Verdict(False, [HOSTILE]),
            results=EvaluationResults(_metrics("", 2.0), (_metrics(HOSTILE, 1.0),)),
            samples=[Sample(HOSTILE, HOSTILE)],
        )
    )
    seen = _Reader(page)
    assert seen.tags & {"script", "img", "iframe", "link"} == set()
    assert not {name for name in seen.attributes if name.startswith("on")}
    assert seen.text.count(HOSTILE) >= 5


def test_the_page_needs_nothing_else():
    """No script, no file, no network."""
    page = as_html(_report())
    assert not re.search(r"<script|src=|href=|url\(|@import|https?://", page)


def test_numbers_that_are_none_are_shown_and_spoil_nothing():
    results = EvaluationResults(_metrics("", math.nan), (_metrics("wiki", math.inf), _metrics("ok", 1.0)))
    report = _report(results=results, log=[{"step": 1, "loss": math.nan}, {"step": 2, "loss": 3.0}])
    page = as_html(report)
    assert not re.search(r'(width|points|x|y)="[^"]*(nan|inf)', page)
    data = json.loads(as_json(report))
    assert data["results"]["overall"]["bits_per_byte"] is None
    assert data["results"]["by_source"][1]["bits_per_byte"] == 1.0


def test_nothing_to_show_is_said():
    page = as_html(_report(log=[], samples=[], results=EvaluationResults(_metrics("", 2.0), ())))
    assert "Nothing was logged" in page and "no baseline to compare with" in page
    assert "no signature that generates" in page


def test_a_curve_goes_through_its_points():
    """From the lowest left to the highest right corner of the axes; a long one is thinned but keeps its end."""
    page = plots.curves([("a", "candidate", [(0.0, 0.0), (10.0, 5.0)])], "step", "loss")
    assert 'points="56.0,248.0 708.0,12.0"' in page
    long = plots.curves([("a", "candidate", [(float(x), float(x)) for x in range(5000)])], "step", "loss")
    points = re.search(r'points="([^"]*)"', long)[1].split()
    assert len(points) == 400 and points[-1] == "708.0,12.0"


@pytest.mark.parametrize("points", [[(1.0, 2.0)], [(1.0, 2.0), (1.0, 2.0)], [(1.0, 1e-30), (2.0, 3e-30)]])
def test_curves_without_extent_are_drawn(points):
    assert "<polyline" in plots.curves([("a", "candidate", points)], "step", "loss")


def test_bars_are_in_proportion():
    page = plots.bars([("all", 2.0, 4.0)], ("this", "that"))
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([0-9.]+)"', page)]
    assert widths[1] == pytest.approx(2 * widths[0], rel=1e-3)
