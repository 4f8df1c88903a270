"""Worker processes of one training on this host: started together, watched, ended together."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO, TypeGuard

from foundation.errors import PeerLostError, PreemptedError
from foundation.events import EVENTS_VARIABLE
from trainer_module import heartbeat
from trainer_module.config import DistributionConfig
from trainer_module.worker import ERROR_VARIABLE

_POLL_S = 0.05
_ECHO_PATIENCE_S = 15.0
"""For how long, after a worker said that another is gone, that other one is looked for."""

_LEAVE_PATIENCE_S = 60.0
"""Between the first worker that leaves in order and the last."""

_STALE_S = 5.0
"""Without a beat for so long, a worker that others miss is the one that is gone."""


class Failure(NamedTuple):
    """Why a group ended."""

    rank: int | None
    """Of the worker that failed first; None: it is not one worker's fault."""

    message: str
    exit_code: int
    """Of the worker, as in `foundation.errors`; 1 where it had no say."""


class WorkerGroup:
    """All workers of one attempt. A context: leaving it kills whatever still runs."""

    def __init__(self, module: str, job: Path, config: DistributionConfig, output: TextIO):
        """Prepares a group.

        Args:
          module: what each worker runs, with `job` as its argument.
          output: gets what the workers print, each line with its worker's rank.
        """
        self._output = output
        self._module = module
        self._job = job
        self._config = config
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pumps: list[threading.Thread] = []
        self._started = 0.0
        self._stop_asked = False

    def __enter__(self) -> "WorkerGroup":
        self._folder = Path(tempfile.mkdtemp(prefix="tokenmill-workers-"))
        self._started = time.time()
        count = self._config.num_workers
        ports = _free_ports(count) if self._config.strategy == "multi_worker" else []
        for rank in range(count):
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", self._module, str(self._job), "--parent", str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=self._environment(rank, ports),
                )
            )
        for rank, process in enumerate(self._processes):
            pump = threading.Thread(
                target=_pump, args=(process.stdout, self._output, rank if count > 1 else None), daemon=True
            )
            pump.start()
            self._pumps.append(pump)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in self._processes:
            process.wait()
        for pump in self._pumps:
            pump.join(timeout=5)
        for path in self._folder.iterdir():
            path.unlink()
        self._folder.rmdir()

    @property
    def pids(self) -> list[int]:
        """Process ids, by rank."""
        return [process.pid for process in self._processes]

    def ask_to_stop(self) -> None:
        """Has all workers save and leave."""
        self._stop_asked = True
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def wait(self) -> Failure | None:
        """Waits for the end; None: every worker has done its job."""
        for _ in _ticks():
            codes = [process.poll() for process in self._processes]
            if all(code == 0 for code in codes):
                return None
            failed = [rank for rank, code in enumerate(codes) if code not in (None, 0)]
            if failed:
                return self._explain(failed)
            if late := self._late():
                return late
        raise AssertionError("unreachable")

    def _late(self) -> Failure | None:
        """A worker, or all of them, that should have been heard of by now."""
        now = time.time()
        beats = self._beats()
        alive = [rank for rank, process in enumerate(self._processes) if process.poll() is None]
        if now - self._started > self._config.startup_timeout_s:
            begun = [_should_beat(beat) for beat in beats]
            missing = [rank for rank in alive if (beat := beats[rank]) is None or beat.phase == heartbeat.STARTING]
            limit = f"within distribution.startup_timeout_s {self._config.startup_timeout_s:g}"
            if not all(begun) and missing:
                names = ", ".join(map(str, missing))
                return Failure(missing[0], f"worker {names} did not start {limit}", 1)
            if not all(begun):
                return Failure(None, f"the workers did not find each other {limit}", 1)
        for rank in alive:
            beat = beats[rank]
            if _should_beat(beat) and now - beat.time > self._config.heartbeat_timeout_s:
                return self._silent(rank, now - beat.time)
        moved = [beat.moved for beat in beats if _should_beat(beat)]
        if alive and moved and now - max(moved) > self._config.step_timeout_s:
            return Failure(
                None, f"no worker has got further within distribution.step_timeout_s {self._config.step_timeout_s:g}", 1
            )
        return None

    def _explain(self, failed: list[int]) -> Failure:
        """The cause, now that some workers have failed: the one that failed of itself, not those that missed it."""
        deadline = time.time() + (_LEAVE_PATIENCE_S if self._stop_asked else _ECHO_PATIENCE_S)
        first = failed[0]
        for _ in _ticks():
            codes = [process.poll() for process in self._processes]
            for rank in (rank for rank, code in enumerate(codes) if code not in (None, 0)):
                if codes[rank] not in (PeerLostError.exit_code, PreemptedError.exit_code):
                    return self._failure_of(rank)
            if all(code == PreemptedError.exit_code for code in codes):
                return self._failure_of(0)
            left = [rank for rank, code in enumerate(codes) if code is None]
            if codes[first] == PeerLostError.exit_code:
                for rank in left:
                    beat = self._beats()[rank]
                    if _should_beat(beat) and time.time() - beat.time > _STALE_S:
                        return self._silent(rank, time.time() - beat.time)
            if not left or time.time() > deadline:
                return self._failure_of(first)
        raise AssertionError("unreachable")

    def _failure_of(self, rank: int) -> Failure:
        code = self._processes[rank].returncode
        if code < 0:
            name = signal.Signals(-code).name
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return Failure(rank, f"worker {rank} was ended by {name}{hint}", 1)
        try:
            report = json.loads(self._error_path(rank).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return Failure(rank, f"worker {rank} left with exit code {code}; the log has what it printed", 1)
        message = report["message"] if code != 1 else f"{report['kind']}: {report['message']}"
        prefix = f"worker {rank}: " if self._config.num_workers > 1 and code != PreemptedError.exit_code else ""
        return Failure(rank, prefix + message, code)

    def _silent(self, rank: int, seconds: float) -> Failure:
        return Failure(rank, f"worker {rank} has given no sign of life for {seconds:.0f} s", 1)

    def _beats(self) -> list[heartbeat.Beat | None]:
        return [heartbeat.read_beat(self._beat_path(rank)) for rank in range(len(self._processes))]

    def _beat_path(self, rank: int) -> Path:
        return self._folder / f"beat-{rank}.json"

    def _error_path(self, rank: int) -> Path:
        return self._folder / f"error-{rank}.json"

    def _environment(self, rank: int, ports: list[int]) -> dict[str, str]:
        environment = {
            **os.environ,
            heartbeat.HEARTBEAT_VARIABLE: str(self._beat_path(rank)),
            ERROR_VARIABLE: str(self._error_path(rank)),
            "PYTHONUNBUFFERED": "1",
        }
        if rank:
            environment.pop(EVENTS_VARIABLE, None)  # one live line of progress: the chief's
        if ports:
            cluster: dict[str, Any] = {"worker": [f"127.0.0.1:{port}" for port in ports]}
            environment["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})
            # Each takes its part of the cores: more threads than cores only get in each other's way.
            threads = str(max(1, len(os.sched_getaffinity(0)) // len(ports)))
            for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
                environment.setdefault(name, threads)
        return environment


def _should_beat(beat: heartbeat.Beat | None) -> TypeGuard[heartbeat.Beat]:
    """Whether the worker has found the others; before that its beats may stop (`trainer_module.heartbeat`)."""
    return beat is not None and beat.phase not in (heartbeat.STARTING, heartbeat.JOINING)


def _ticks() -> Iterator[None]:
    while True:
        yield
        time.sleep(_POLL_S)


def _pump(stream: IO[bytes], output: TextIO, rank: int | None) -> None:
    """Copies a worker's output, each line with its rank."""
    prefix = "" if rank is None else f"[worker {rank}] "
    for line in stream:
        output.write(prefix + line.decode("utf-8", "replace").rstrip("\n") + "\n")
        output.flush()


def _free_ports(count: int) -> list[int]:
    """Ports on the loopback interface that nobody listens on now.

    Another process may take one before its worker does: that attempt fails, and the next one gets others.
    """
    with contextlib.ExitStack() as sockets:
        ports = []
        for _ in range(count):
            taken = sockets.enter_context(socket.socket())
            taken.bind(("127.0.0.1", 0))
            ports.append(taken.getsockname()[1])
    return ports
