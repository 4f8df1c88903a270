"""Progress events: how a process that works tells the process that shows.

Whoever starts a run sets `TOKENMILL_EVENTS` to a file; whoever works appends one JSON object per
line with `emit`. The file is opened with O_APPEND and a line is written by one call, so several
processes may write to it. Without the variable `emit` does nothing: the same code runs in a
container, where the log is all there is.

Kinds and their fields (beside `kind`, `time` in seconds since the epoch and `pid`):

    run_started          pipeline, run_id, components: list of ids in order
    component_started    component
    component_cached     component, seconds
    component_running    component, reason: why the cache could not be used
    component_done       component, seconds
    component_failed     component, seconds, error: one line
    component_skipped    component
    summary              metrics, verdict and place of the model: `runners.local.summary`
    run_finished         ok: bool; if not, error: one line, and exit_code
    training_step        step, total_steps, loss, learning_rate, grad_norm, tokens_per_s, eta_s, tokens_seen
                         (tokens_per_s and eta_s are null until a step after the one that compiles)
    validation           step, loss, bits_per_byte or null
    note                 text: one line worth showing; component, where one says it
"""

import contextlib
import json
import os
import time
from typing import Any

EVENTS_VARIABLE = "TOKENMILL_EVENTS"


def emit(kind: str, **fields: Any) -> None:
    """Appends one event to the file named by `TOKENMILL_EVENTS`; does nothing if it is unset.

    Nor does it fail where the line cannot be written, on a full disk say: no work is lost for want of a line.
    """
    path = os.environ.get(EVENTS_VARIABLE)
    if not path:
        return
    event = {"kind": kind, "time": time.time(), "pid": os.getpid(), **fields}
    line = json.dumps(event, ensure_ascii=False, default=str) + "\n"
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
