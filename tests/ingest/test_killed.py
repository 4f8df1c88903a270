"""An ingest killed at any point leaves nothing that a run would read; the next one cleans up and does the work.

The ingests here are real processes. Each stops at a point, says so, and waits for its input.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from foundation.tfrecord import read_records
from ingest.options import IngestOptions
from ingest.report import IngestReport
from ingest.run import run_ingest

STOPS = {
    "runs are written": ("ingest.run", "find_duplicates", "before"),
    "a shard is half written": ("ingest.shards", "write_shard", "half"),
    "all is there but the name": ("foundation.atomic", "sync_tree", "after"),
    "interrupted": ("ingest.shards", "write_shard", "half"),
}

SCRIPT = """
import importlib, os, sys
from ingest.options import IngestOptions
from ingest.run import run_ingest

out, data, module_name, name, when = sys.argv[1:]
module = importlib.import_module(module_name)
original = getattr(module, name)

def wait():
    print("stopped", flush=True)
    os.read(0, 1)

def stopping(*args):
    if when == "half":
        path, documents = args
        original(path, documents[: len(documents) // 2])
        wait()
    if when == "before":
        wait()
    result = original(*args)
    if when == "after":
        wait()
    return result

setattr(module, name, stopping)
report = run_ingest(IngestOptions(out=out, inputs=[data]))
print(report.span_folder, report.unchanged, flush=True)
"""


def ingest(out: Path, data: Path) -> IngestReport:
    return run_ingest(IngestOptions(out=str(out), inputs=[str(data)]))


def staging(out: Path) -> list[str]:
    return [name for name in os.listdir(out) if name.startswith(".staging-")]


@pytest.fixture
def stopped(tmp_path: Path, data: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """A process at each of the stops, all at once; the one called X works in `tmp_path / X`."""
    for number in range(20):
        (data / f"{number}.txt").write_text(f"text {number}")
    processes = {}
    for stop, (module, name, when) in STOPS.items():
        arguments = [str(tmp_path / stop), str(data), module, name, when]
        processes[stop] = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # A background job of a shell ignores SIGINT, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    try:
        for process in processes.values():
            assert process.stdout is not None
            assert process.stdout.readline() == "stopped\n"
        yield processes
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


def test_killed_and_overtaken(tmp_path: Path, data: Path, stopped: dict[str, subprocess.Popen[str]]) -> None:
    """One test, since its processes take seconds to start."""
    # While the first lives, another ingest does the same work beside it, and does not touch its folder.
    out = tmp_path / "runs are written"
    report = ingest(out, data)
    assert (report.span_folder, report.unchanged) == (str(out / "span-1"), False)
    assert len(staging(out)) == 1
    # Let go, the first finds the span there, and does not make another.
    assert stopped["runs are written"].communicate("\n")[0] == f"{out / 'span-1'} True\n"
    assert sorted(os.listdir(out)) == [".ingest.lock", "span-1"]

    # Ctrl-C ends one that is at work at once, and it cleans up itself.
    out = tmp_path / "interrupted"
    stopped["interrupted"].send_signal(signal.SIGINT)
    assert stopped["interrupted"].wait() == -signal.SIGINT
    assert os.listdir(out) == [".ingest.lock"]

    for stop in ("a shard is half written", "all is there but the name"):
        out = tmp_path / stop
        stopped[stop].send_signal(signal.SIGKILL)
        assert stopped[stop].wait() == -signal.SIGKILL
        (left,) = staging(out)
        assert sorted(os.listdir(out)) == sorted([".ingest.lock", left])
        assert list(out.glob("span-*/documents-*")) == []
        report = ingest(out, data)
        assert (report.span_folder, report.unchanged) == (str(out / "span-1"), False)
        assert sorted(os.listdir(out)) == [".ingest.lock", "span-1"]
        (shard,) = out.glob("span-*/documents-*")
        assert len(list(read_records(shard))) == 20
