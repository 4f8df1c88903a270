"""Events add up to a state, and the state to what a person sees."""

import re

import pytest
from rich.console import Console

from runners.cli.run_state import RunState
from runners.cli.run_view import draw, duration, plain_line, print_summary


def state_after(*events):
    state = RunState()
    for event in events:
        state.apply({"time": 100.0, **event})
    return state


STARTED = {"kind": "run_started", "pipeline": "p", "run_id": "r", "components": ["First", "DistributedTrainer", "Last"]}
RUNNING = (
    STARTED,
    {"kind": "component_started", "component": "First"},
    {"kind": "component_cached", "component": "First", "seconds": 0.04},
    {"kind": "component_started", "component": "DistributedTrainer"},
    {"kind": "component_running", "component": "DistributedTrainer", "reason": "train.steps changed"},
    {
        "kind": "training_step",
        "step": 50,
        "total_steps": 200,
        "loss": 3.21,
        "tokens_per_s": 8123.0,
        "eta_s": 75.0,
        "learning_rate": 1e-3,
        "grad_norm": 1.0,
        "tokens_seen": 1,
    },
)


def rendered(state, width=100, now=107.5):
    console = Console(width=width, record=True, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    console.print(draw(state, now))
    return console.export_text()


def test_states_follow_the_events():
    state = state_after(*RUNNING)
    assert [(name, component.state) for name, component in state.components.items()] == [
        ("First", "cached"),
        ("DistributedTrainer", "running"),
        ("Last", "waiting"),
    ]
    assert state.ok is None and state.failed is None


def test_the_table_shows_state_time_reason_and_training():
    text = rendered(state_after(*RUNNING))
    lines = [line.split() for line in text.splitlines() if line.strip()]
    assert lines[0] == ["First", "cached", "0.0", "s"]
    assert lines[1] == ["DistributedTrainer", "running", "7.5", "s", "train.steps", "changed"]
    assert lines[2] == ["Last", "waiting"]
    assert "step 50/200  loss 3.210  8,123 tokens/s  1 min 15 s left" in text


def test_a_narrow_terminal_cuts_reasons_not_names():
    text = rendered(state_after(*RUNNING), width=50)
    assert "DistributedTrainer" in text
    assert max(len(line) for line in text.splitlines()) <= 50


def test_a_failure_is_kept_with_its_cause():
    failed = {"kind": "component_failed", "component": "DistributedTrainer", "seconds": 3.0, "error": "out of [memory]"}
    state = state_after(*RUNNING, failed, {"kind": "run_finished", "ok": False, "error": "out of [memory]"})
    assert (state.failed, state.ok, state.error) == ("DistributedTrainer", False, "out of [memory]")
    assert "out of [memory]" in rendered(state)


def test_unknown_events_are_ignored():
    assert state_after({"kind": "from_the_future"}).components == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (60, "1 min 00 s"),
        (3599, "59 min 59 s"),
        (7800, "2 h 10 min"),
    ],
)
def test_durations_are_read_at_a_glance(seconds, text):
    assert duration(seconds) == text


def test_plain_lines_say_what_the_table_says():
    lines = [plain_line(event) for event in RUNNING]
    assert lines == [
        None,
        None,
        "First: cached",
        None,
        "DistributedTrainer: running (train.steps changed)",
        "  step 50/200  loss 3.210  8,123 tokens/s  1 min 15 s left",
    ]


METRICS = {
    "perplexity": 12.3,
    "bits_per_byte": 1.234,
    "token_accuracy": 0.5,
    "num_tokens": 10,
    "num_bytes": 1000,
    "num_documents": 3,
}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ({"blessed": True, "outcome": "pushed", "destination": "/r/1", "version": "1"}, "Pushed as version 1: /r/1"),
        (
            {"blessed": True, "outcome": "already_served", "destination": "/r/1", "version": "1"},
            "Served already, as version 1: /r/1",
        ),
        (
            {"blessed": False, "outcome": "not_blessed", "destination": "", "version": "", "model": "/m"},
            "Nothing was pushed; the registry is as it was.\nTry it all the same: tokenmill generate --model /m",
        ),
        (
            {"blessed": True, "export_valid": False, "export": "the export is not valid", "outcome": "not_blessed"}
            | {"destination": "", "version": ""},
            "But the export is not valid.\nNothing was pushed; the registry is as it was.",
        ),
    ],
)
def test_the_summary_gives_metrics_verdict_and_place(outcome, expected):
    slices = [{**METRICS, "source": f"s{i}", "num_bytes": 100 + i} for i in range(10)]
    summary = {"kind": "summary", "overall": METRICS, "slices": slices, "reasons": ["1.234 is at most 2.5"], **outcome}
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    print_summary(console, state_after(summary))
    text = console.export_text()
    assert expected in text
    assert f"The model is {'' if outcome['blessed'] else 'not '}blessed: 1.234 is at most 2.5." in text
    assert "1.234" in text and "50.0%" in text
    assert "s9" in text and "s2" in text and "\ns1 " not in text
    assert re.search(r"\(2 smaller\) +6 +201\b", text)


def test_a_failure_is_told_whatever_the_component_said_before():
    """Its first line; the whole follows the table."""
    state = state_after(
        STARTED,
        {"kind": "component_running", "component": "First", "reason": "first run"},
        {"kind": "note", "component": "First", "text": "nearly done"},
        {"kind": "component_failed", "component": "First", "seconds": 1.0, "error": "disk full\nfree some"},
    )
    (line,) = [text for text in rendered(state).splitlines() if text.startswith("First")]
    assert "disk full" in line and "nearly done" not in line and "free some" not in line


def test_what_training_says_stands_beside_its_component():
    """The training process does not know which component it works for."""
    state = state_after(*RUNNING, {"kind": "note", "text": "training goes on after step 6"})
    (line,) = [text for text in rendered(state).splitlines() if text.startswith("DistributedTrainer")]
    assert "training goes on after step 6" in line
    assert plain_line({"kind": "note", "text": "training goes on after step 6"}) == "training goes on after step 6"
