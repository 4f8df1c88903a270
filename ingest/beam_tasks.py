"""Tasks on Beam: many independent pieces of work in, their outcomes out.

A task leaves its outcome in a file, and a fault of the disk or the documents is an outcome:
an exception in a worker would reach the caller as text of an unknown class.
"""

import dataclasses
import os
import pickle
import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from foundation.errors import HostError, TokenmillError
from ingest.options import IngestOptions

_WORKER_THREAD_NAME = "run_worker"
"""The thread of Beam's local runner that waits for a worker process, and fails with it."""


class Task(Protocol):
    """Picklable; may run on another machine."""

    def run(self) -> Any: ...


@dataclasses.dataclass(frozen=True)
class _Numbered:
    number: int
    task: Task
    outcome_path: str


def run_tasks(label: str, tasks: Sequence[Task], folder: Path, options: IngestOptions) -> list[Any]:
    """Outcomes of `tasks`, in their order.

    Args:
      label: of the Beam pipeline, and of the outcome files in `folder`.

    Raises:
      HostError: the disk.
      TokenmillError: what a task raised.
    """
    numbered = [_Numbered(i, task, str(folder / f"{label}-{i:06d}.outcome")) for i, task in enumerate(tasks)]
    pipeline = beam.Pipeline(options=PipelineOptions(_flags(options)))
    _ = pipeline | "Tasks" >> beam.Create(numbered) | "Spread" >> beam.Reshuffle() | label >> beam.ParDo(_RunDoFn())
    _run_watched(pipeline)
    outcomes = [pickle.loads(Path(item.outcome_path).read_bytes()) for item in numbered]
    for outcome in outcomes:
        if isinstance(outcome, TokenmillError):
            raise outcome
    return outcomes


def _run_watched(pipeline: beam.Pipeline) -> None:
    """Runs in a thread of its own, and waits for it here, where two things can end the wait that Beam does not let end:

    - a worker process that dies: the local runner would wait for it for ever;
    - Ctrl-C, which goes to the main thread: in a task, Beam would make a RuntimeError of it.

    Raises:
      HostError: a worker process died.
    """
    events: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            pipeline.run().wait_until_finish()
            events.put(None)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            events.put(error)

    def died(hook: threading.ExceptHookArgs) -> None:
        if hook.thread is not None and hook.thread.name == _WORKER_THREAD_NAME:
            cause = f"{hook.exc_value}; was it killed for memory? Give fewer num_workers"
            events.put(HostError(f"a worker process of Beam died ({cause}); what it wrote to stderr says more"))
        else:
            previous_hook(hook)

    previous_hook = threading.excepthook
    threading.excepthook = died
    try:
        threading.Thread(target=run, name="ingest-beam", daemon=True).start()
        error = events.get()
    finally:
        threading.excepthook = previous_hook
    if error is not None:
        raise error


class _RunDoFn(beam.DoFn):
    def process(self, numbered: _Numbered) -> None:
        try:
            outcome = numbered.task.run()
        except TokenmillError as error:
            outcome = error
        except OSError as error:
            outcome = HostError(
                f"cannot write documents ({error}); an ingest needs about twice the size of its text for a while: "
                "free or enlarge the disk, then run again"
            )
        staged = f"{numbered.outcome_path}.{os.getpid()}"
        Path(staged).write_bytes(pickle.dumps(outcome))
        os.replace(staged, numbered.outcome_path)


def _flags(options: IngestOptions) -> list[str]:
    if options.beam_args:
        return list(options.beam_args)
    # By its own name: the one called DirectRunner first looks for Prism, a program that it would fetch from the net.
    flags = ["--runner=FnApiRunner", "--sdk_container_image=unused"]
    if options.num_workers > 1:
        flags += ["--direct_running_mode=multi_processing", f"--direct_num_workers={options.num_workers}"]
    else:
        flags += ["--direct_running_mode=in_memory", "--direct_num_workers=1"]
    return flags
