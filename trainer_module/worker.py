"""One process of a training: `python -m trainer_module.worker JOB`, the same on a laptop and in a cluster's pod.

JOB is a JSON file with the arguments of `trainer_module.run.run_fn`. Which process this is among how many
comes from TF_CONFIG. The exit code is that of the error's class (`foundation.errors`); with
`TOKENMILL_WORKER_ERROR` set to a file, what went wrong is written there, too.
"""

import argparse
import json
import os
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from foundation.errors import PeerLostError, TokenmillError
from foundation.processes import die_with_parent
from trainer_module import heartbeat

ERROR_VARIABLE = "TOKENMILL_WORKER_ERROR"

_UNEXPECTED = 1


def main(arguments: list[str] | None = None) -> int:
    """Trains as JOB says; gives the exit code."""
    parser = argparse.ArgumentParser(prog="trainer_module.worker")
    parser.add_argument("job", type=Path)
    parser.add_argument("--parent", type=int, help="process with which this one ends")
    options = parser.parse_args(arguments)
    if options.parent:
        die_with_parent(options.parent)
    with heartbeat.beating():
        try:
            _run(json.loads(options.job.read_text(encoding="utf-8")))
        except Exception as error:  # noqa: BLE001 - the last frame: everything ends as an exit code
            traceback.print_exc()
            return _report(error)
    return 0


def _run(job: dict[str, Any]) -> None:
    from trainer_module.run import run_fn  # imports TensorFlow, while the heart beats already

    run_fn(SimpleNamespace(**job))


def _report(error: Exception) -> int:
    """Writes what went wrong where it is expected; gives the exit code."""
    if _is_echo(error):
        error = PeerLostError(f"another worker is gone ({str(error).splitlines()[0][:300]})")
    code = error.exit_code if isinstance(error, TokenmillError) else _UNEXPECTED
    place = os.environ.get(ERROR_VARIABLE)
    if place:
        report = {"kind": type(error).__name__, "message": str(error), "exit_code": code}
        Path(place).write_text(json.dumps(report), encoding="utf-8")
    return code


def _is_echo(error: Exception) -> bool:
    """Whether this is how TensorFlow says that another worker has died."""
    import tensorflow as tf

    lost = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
    if isinstance(error, (*lost, tf.errors.DeadlineExceededError)):
        return True
    return isinstance(error, tf.errors.OpError) and "oordination" in str(error)


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without TensorFlow's own ending: with a worker gone it waits, some for ever, for an answer from that one.
    os._exit(exit_code)
