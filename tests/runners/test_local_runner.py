"""What ran, what was cached, and why: as told by events, and as the files show."""

import json
import shutil
from pathlib import Path

import pytest

from foundation.errors import CorpusError, PipelineError
from foundation.events import EVENTS_VARIABLE
from runners.local.runner import run_pipeline
from tests.runners.toy_components import toy_pipeline


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the toy pipeline; gives what each component did, and its outputs."""

    def run(from_nodes=None, to_nodes=None, **settings):
        events = tmp_path / "events.jsonl"
        events.unlink(missing_ok=True)
        monkeypatch.setenv(EVENTS_VARIABLE, str(events))
        try:
            outputs = run_pipeline(toy_pipeline(tmp_path, **settings), from_nodes, to_nodes)
        finally:
            run.events = [json.loads(line) for line in events.read_text().splitlines()]
        told = {}
        for event in run.events:
            if event["kind"] == "component_running":
                told[event["component"]] = event["reason"]
            elif event["kind"] in ("component_cached", "component_skipped"):
                told[event["component"]] = event["kind"].removeprefix("component_")
        return told, outputs

    return run


def number_of(outputs):
    return int(Path(outputs["Double"]["statistics"][0].uri, "number").read_text())


def test_the_second_run_is_all_cached_and_gives_the_first_ones_outputs(run):
    told, outputs = run(number=3)
    assert told == {"Source": "first run", "Double": "first run"}
    assert number_of(outputs) == 6
    told, again = run(number=3)
    assert told == {"Source": "cached", "Double": "cached"}
    assert again["Double"]["statistics"][0].uri == outputs["Double"]["statistics"][0].uri


def test_what_changed_is_named_and_runs_again_with_what_depends_on_it(run):
    run(number=1)
    told, outputs = run(number=2)
    assert told == {"Source": "settings.number changed", "Double": "new examples"}
    assert number_of(outputs) == 4
    told, _ = run(number=2, code_hash="b")
    assert told == {"Source": "its code changed", "Double": "new examples"}


def test_an_earlier_setting_is_still_in_the_cache(run):
    run(number=1)
    run(number=2)
    told, outputs = run(number=1)
    assert told == {"Source": "cached", "Double": "cached"}
    assert number_of(outputs) == 2


def test_deleted_outputs_are_made_again(run):
    _, outputs = run(number=1)
    shutil.rmtree(outputs["Double"]["statistics"][0].uri)
    told, outputs = run(number=1)
    assert told["Source"] == "cached"
    assert told["Double"].startswith("earlier outputs are gone")
    assert number_of(outputs) == 2


def test_a_failure_is_told_raised_and_leaves_the_next_run_whole(run):
    run(number=1)
    with pytest.raises(CorpusError, match="number -1 is negative"):
        run(number=-1)
    failed = [event for event in run.events if event["kind"] == "component_failed"]
    assert [(event["component"], event["error"]) for event in failed] == [
        ("Source", "number -1 is negative; give another")
    ]
    assert not [event for event in run.events if event.get("component") == "Double"]
    told, outputs = run(number=5)
    assert told == {"Source": "settings.number changed", "Double": "new examples"}
    assert number_of(outputs) == 10


def test_a_failure_without_any_change_is_the_reason_to_try_again(run):
    with pytest.raises(CorpusError):
        run(number=-1)
    with pytest.raises(CorpusError):
        run(number=-1)
    reasons = [event["reason"] for event in run.events if event["kind"] == "component_running"]
    assert reasons == ["last attempt failed"]


def test_a_partial_run_uses_earlier_outputs(run):
    run(number=4)
    told, outputs = run(number=4, from_nodes=["Double"])
    assert told == {"Source": "skipped", "Double": "cached"}
    assert number_of(outputs) == 8


def test_a_partial_run_without_earlier_outputs_is_an_error(run):
    with pytest.raises(PipelineError, match=r"Double: there is no earlier run .* without --from"):
        run(number=4, from_nodes=["Double"])
