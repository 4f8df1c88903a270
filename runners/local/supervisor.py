"""The parent's side of a local run: starts the child, follows its events, ends it with all it started."""

import contextlib
import ctypes
import datetime
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from foundation.errors import HostError
from foundation.events import EVENTS_VARIABLE

_POLL_S = 0.1
"""How often the parent looks for new events."""

_GRACE_S = 30.0
"""What processes get between SIGTERM and SIGKILL: enough for a training to end its step and save."""

_AFTER_KILL_S = 10.0
"""For how long the end of a killed process is waited for."""

_INTERRUPTIONS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class Supervisor:
    """One run in a child process. Use as a context: leaving it ends whatever still runs.

    with Supervisor(root, arguments) as run:
        for event in run.events():
            ...
    run.exit_code
    """

    def __init__(self, root: Path, arguments: list[str], module: str = "runners.local.worker"):
        """Prepares a run.

        Args:
          root: the run root; logs go to `root/logs`.
          arguments: of the worker.
          module: the worker.
        """
        self._module = module
        self._root = root
        self._arguments = arguments
        name = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        self.log_path = root / "logs" / f"{name}-{os.getpid()}.log"
        """Everything that the run printed."""
        self._events_path = self.log_path.with_suffix(".events.jsonl")
        self.exit_code: int | None = None
        """Of the child, once it has ended; negative: the signal that killed it."""
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> "Supervisor":
        """Starts the child.

        Raises:
          HostError: another run is at work in the same run root.
        """
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._events_path.touch()
        lock = self._resources.enter_context((self._root / ".lock").open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._resources.close()
            raise HostError(
                f"another run is at work in {self._root}; wait for it, or give this one a folder of its own: "
                "--set run_root=FOLDER"
            ) from None
        log = self._resources.enter_context(self.log_path.open("wb"))
        _adopt_orphans()
        self._child = subprocess.Popen(
            [sys.executable, "-m", self._module, "--parent", str(os.getpid()), *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, EVENTS_VARIABLE: str(self._events_path), "TF_CPP_MIN_LOG_LEVEL": "1"},
            start_new_session=True,  # Ctrl-C reaches the parent alone, which ends the child in order
            pass_fds=[lock.fileno()],  # the lock is held for as long as either of the two lives
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._resources.close()

    def events(self) -> Iterator[dict[str, Any] | None]:
        """Events in the order of their writing, and None whenever there is nothing new, until the child has ended."""
        with self._events_path.open("rb") as file:
            rest = b""
            ended = False
            while True:
                rest += file.read()
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    with contextlib.suppress(ValueError):  # cut short: the disk was full, or the writer was killed
                        yield json.loads(line)
                if ended:
                    break
                ended = self._child.poll() is not None  # one more look after the end: nothing is lost
                if not lines and not ended:
                    yield None
                    time.sleep(_POLL_S)
        self.exit_code = self._child.returncode

    def stop(self) -> None:
        """Ends the child and every process below it: SIGTERM, half a minute, SIGKILL. Does nothing if all has ended.

        A second Ctrl-C shortens the wait; it does not leave half of them alive.
        """
        with _uninterrupted():
            processes = _descendants()
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGTERM)
            until = time.monotonic() + _GRACE_S
            while processes and time.monotonic() < until and not signal.sigpending() & _INTERRUPTIONS:
                _, processes = psutil.wait_procs(processes, timeout=_POLL_S)
            for process in _descendants():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(_descendants(), timeout=_AFTER_KILL_S)
            self.exit_code = self._child.wait()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals that would interrupt wait until the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTIONS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _adopt_orphans() -> None:
    """A descendant whose parent died becomes our child, instead of init's, so that it can be found and ended."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)
