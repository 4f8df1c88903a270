"""Events: one line each, from several processes at once, none torn."""

import json
import subprocess
import sys

from foundation.events import EVENTS_VARIABLE, emit


def test_an_event_is_one_json_line(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv(EVENTS_VARIABLE, str(path))
    emit("note", component="Transform", text="zwei\nZeilen")
    (line,) = path.read_text(encoding="utf-8").splitlines()
    event = json.loads(line)
    assert (event["kind"], event["component"], event["text"]) == ("note", "Transform", "zwei\nZeilen")
    assert event["pid"] > 0 and event["time"] > 1e9


def test_without_a_listener_nothing_happens(tmp_path, monkeypatch):
    monkeypatch.delenv(EVENTS_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    emit("note", text="unheard")
    assert list(tmp_path.iterdir()) == []


def test_lines_of_processes_that_write_at_once_are_whole(tmp_path, monkeypatch):
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv(EVENTS_VARIABLE, str(path))
    code = (
        "import sys\nfrom foundation.events import emit\nfor i in range(300): emit('note', text=sys.argv[1] * 500, i=i)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, letter]) for letter in "abc"]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(events) == 900
    for letter in "abc":
        assert [event["i"] for event in events if event["text"] == letter * 500] == list(range(300))
