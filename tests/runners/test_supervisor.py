"""The parent sees everything that the child says, and nothing that was started outlives the run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from foundation.errors import HostError
from runners.local.supervisor import Supervisor

ROOT = Path(__file__).resolve().parents[2]


def supervise(root, task):
    return Supervisor(root, [task], module="tests.runners.fake_worker")


def test_every_event_arrives_in_order(tmp_path):
    with supervise(tmp_path, "talk") as run:
        texts = [event["text"] for event in run.events() if event]
    assert texts == [str(number) for number in range(1000)]
    assert run.exit_code == 0


def test_chatter_goes_to_the_log_alone(tmp_path, capfd):
    with supervise(tmp_path, "talk") as run:
        list(run.events())
    assert "chatter on stdout" in run.log_path.read_text()
    assert "chatter on descriptor 2" in run.log_path.read_text()
    assert capfd.readouterr() == ("", "")


def test_the_exit_code_is_the_childs(tmp_path):
    with supervise(tmp_path, "fail") as run:
        events = [event for event in run.events() if event]
    assert run.exit_code == 3
    assert events[-1]["error"] == "bad corpus"


def test_a_killed_child_is_noticed(tmp_path):
    with supervise(tmp_path, "die") as run:
        list(run.events())
    assert run.exit_code == -signal.SIGKILL


def test_two_runs_in_one_root_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("runners.local.supervisor._GRACE_S", 1.0)
    with supervise(tmp_path, "family") as run:
        next(event for event in run.events() if event)
        with (
            pytest.raises(HostError, match=r"another run is at work.*--set run_root=FOLDER"),
            supervise(tmp_path, "talk"),
        ):
            pass
    with supervise(tmp_path, "talk") as after:
        list(after.events())
    assert after.exit_code == 0


def test_leaving_ends_the_whole_family(tmp_path, monkeypatch):
    """A child in a session of its own that ignores SIGTERM, and one whose parent has died."""
    monkeypatch.setattr("runners.local.supervisor._GRACE_S", 1.0)
    with supervise(tmp_path, "family") as run:
        family = next(event for event in run.events() if event)["children"]
        assert all(psutil.pid_exists(pid) for pid in family)
    assert [pid for pid in family if psutil.pid_exists(pid)] == []


PARENT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell starts its children deaf to it
from pathlib import Path
from runners.local.supervisor import Supervisor
with Supervisor(Path(sys.argv[1]), ["family"], module="tests.runners.fake_worker") as run:
    for event in run.events():
        if event:
            print(event["children"], flush=True)
"""


def test_a_second_interruption_does_not_stop_the_ending(tmp_path):
    """The family ignores SIGTERM, so that its end takes the whole grace: time enough to be impatient."""
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import runners.local.supervisor as s; s._GRACE_S = 2.0\n{PARENT}", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    family = json.loads(parent.stdout.readline())
    child = psutil.Process(family[0])
    os.kill(parent.pid, signal.SIGINT)
    child.wait(timeout=60)  # it heeds SIGTERM, and the others are being waited for
    os.kill(parent.pid, signal.SIGINT)
    parent.communicate(timeout=60)
    assert [pid for pid in family if psutil.pid_exists(pid)] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_child_does_not_outlive_its_parent(tmp_path, number):
    """Ctrl-C ends the family in order; where the parent is killed outright, the kernel ends the child."""
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import runners.local.supervisor as s; s._GRACE_S = 2.0\n{PARENT}", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    family = json.loads(parent.stdout.readline())
    child = psutil.Process(family[0])
    os.kill(parent.pid, number)
    parent.communicate(timeout=60)
    psutil.wait_procs([child], timeout=60)
    assert not child.is_running()
    survivors = [psutil.Process(pid) for pid in family[1:] if psutil.pid_exists(pid)]
    for process in survivors:
        process.kill()
    if number == signal.SIGINT:
        assert survivors == []
