"""Puts requests that may share a batch together, and runs the batches on a few threads.

Requests share a batch when they have the same key: the loaded version, the signature, and the shapes of their inputs
but the first dimension. A batch runs when it is full, or when its first request has waited for the timeout. It is
filled up to an allowed size with copies of its last row, whose answers are dropped. If the model refuses a
batch, each of its requests is run alone, so that one bad row fails its own request and no other.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from serving.failures import Draining, InvalidRequest, Overloaded, TimedOut
from serving.metrics import Metrics
from serving.settings import Batching

Arrays = Mapping[str, Any]
Run = Callable[[Arrays], dict[str, Any]]


@dataclass(eq=False)
class _Request:
    run: Run
    inputs: Arrays
    rows: int
    shares: bool
    """Whether it may share its batch."""

    deadline: float
    arrived: float
    answer: "Future[dict[str, Any]]" = field(default_factory=Future)


class Batcher:
    """A bounded queue and the threads that empty it."""

    def __init__(self, settings: Batching, metrics: Metrics):
        self._settings, self._metrics = settings, metrics
        self._capacity = settings.max_batch_size * settings.max_enqueued_batches
        self._queues: dict[Hashable, deque[_Request]] = {}
        self._waiting_rows = 0
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"batch-{number}", daemon=True)
            for number in range(settings.num_batch_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self, key: Hashable | None, run: Run, inputs: Arrays, rows: int, deadline: float
    ) -> "Future[dict[str, Any]]":
        """Queues a request.

        Args:
          key: requests of one key share batches; None: runs alone, as it is, at once.
          run: answers a batch; all requests of a key have the same.
          inputs: arrays; with a key, the first dimension of each is `rows`.
          deadline: by `time.monotonic`; after it, it is not begun.

        Raises:
          InvalidRequest: more rows than a batch has.
          Overloaded: the queue is full.
          Draining: `close` was called.
        """
        if key is not None and rows > self._settings.max_batch_size:
            raise InvalidRequest(f"{rows} rows in a request; max_batch_size is {self._settings.max_batch_size}")
        request = _Request(run, inputs, rows, key is not None, deadline, time.monotonic())
        with self._changed:
            if self._closed:
                raise Draining("the server is shutting down")
            if self._waiting_rows + rows > self._capacity:
                raise Overloaded(f"the queue is full ({self._capacity} rows wait); try again later")
            self._queues.setdefault(object() if key is None else key, deque()).append(request)
            self._count(rows)
            self._changed.notify()
        return request.answer

    def close(self) -> None:
        """Takes no more, runs what waits, ends the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _count(self, rows: int) -> None:
        self._waiting_rows += rows
        self._metrics.queue_rows.set(self._waiting_rows)

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            self._answer(batch)

    def _next(self) -> list[_Request] | None:
        """The next batch that is due; None when closed and empty."""
        with self._changed:
            while True:
                wait: float | None = None
                # The longest waiting first: no key can starve another.
                for key in sorted(self._queues, key=lambda key: self._queues[key][0].arrived):
                    queue = self._queues[key]
                    due_in = self._due_in(queue)
                    if due_in <= 0:
                        return self._take(key, queue)
                    wait = due_in if wait is None else min(wait, due_in)
                if self._closed and not self._queues:
                    return None
                self._changed.wait(wait)

    def _due_in(self, queue: deque[_Request]) -> float:
        full = sum(request.rows for request in queue) >= self._settings.max_batch_size
        if full or self._closed or not queue[0].shares:
            return 0.0
        return queue[0].arrived + self._settings.batch_timeout_micros / 1e6 - time.monotonic()

    def _take(self, key: Hashable, queue: deque[_Request]) -> list[_Request]:
        batch = [queue.popleft()]
        rows = batch[0].rows
        while queue and rows + queue[0].rows <= self._settings.max_batch_size:
            rows += queue[0].rows
            batch.append(queue.popleft())
        if not queue:
            del self._queues[key]
        else:
            self._changed.notify()
        self._count(-rows)
        return batch

    def _answer(self, batch: list[_Request]) -> None:
        now = time.monotonic()
        alive = []
        for request in batch:
            self._metrics.queued.observe(now - request.arrived)
            if not request.answer.set_running_or_notify_cancel():
                continue  # its client is gone
            if now > request.deadline:
                request.answer.set_exception(TimedOut("waited in the queue for all of its time"))
            else:
                alive.append(request)
        if not alive:
            return
        self._metrics.batch_rows.observe(sum(request.rows for request in alive))
        if len(alive) == 1:
            self._alone(alive[0])
            return
        try:
            outputs = self._run(alive)
        except Exception:  # noqa: BLE001 - whatever it was, the requests run alone tell whose it is
            for request in alive:
                self._alone(request)
            return
        start = 0
        for request in alive:
            end = start + request.rows
            request.answer.set_result({name: value[start:end] for name, value in outputs.items()})
            start = end

    def _alone(self, request: _Request) -> None:
        try:
            outputs = self._run([request]) if request.shares else request.run(request.inputs)
        except Exception as error:  # noqa: BLE001 - it is the client's to see, and the thread lives on
            request.answer.set_exception(error)
        else:
            if request.shares:
                outputs = {name: value[: request.rows] for name, value in outputs.items()}
            request.answer.set_result(outputs)

    def _run(self, requests: list[_Request]) -> dict[str, Any]:
        rows = sum(request.rows for request in requests)
        size = next(size for size in self._settings.allowed_batch_sizes if size >= rows)
        joined = {}
        for name in requests[0].inputs:
            parts = [request.inputs[name] for request in requests]
            parts += [parts[-1][-1:]] * (size - rows)
            joined[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return requests[0].run(joined)
