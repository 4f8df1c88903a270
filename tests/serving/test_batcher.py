"""What shares a batch, what a full queue says, and that a bad row fails alone."""

import threading
import time

import numpy as np
import pytest

from serving.batcher import Batcher
from serving.failures import InvalidRequest, Overloaded, TimedOut
from serving.metrics import Metrics
from serving.settings import Batching

LATER = time.monotonic() + 3600


def double(inputs):
    if (inputs["x"] < 0).any():
        raise ValueError("negative")
    return {"y": inputs["x"] * 2, "size": np.full(len(inputs["x"]), len(inputs["x"]))}


def test_requests_of_one_key_share_a_batch_and_each_gets_its_own_answer():
    settings = Batching(4, 60_000_000, 1, 10, (1, 2, 4))
    batcher = Batcher(settings, Metrics())
    answers = [batcher.submit("a", double, {"x": np.array([n])}, 1, LATER) for n in (1, 2, -3, 4)]
    assert [answers[n].result(10)["y"].tolist() for n in (0, 1, 3)] == [[2], [4], [8]]
    with pytest.raises(ValueError, match="negative"):
        answers[2].result(10)
    shared = [batcher.submit("a", double, {"x": np.array([n])}, 1, LATER) for n in (1, 2, 3)]
    batcher.close()  # what waits is run: three rows, filled up to four
    assert [answer.result(10)["size"].tolist() for answer in shared] == [[4], [4], [4]]


def test_a_full_queue_and_a_late_request():
    gate = threading.Event()
    started = threading.Event()

    def wait(inputs):
        started.set()
        gate.wait(10)
        return inputs

    batcher = Batcher(Batching(1, 0, 1, 2, (1,)), Metrics())
    first = batcher.submit("a", wait, {"x": np.array([1])}, 1, LATER)
    assert started.wait(10)
    late = batcher.submit("a", wait, {"x": np.array([1])}, 1, 0.0)
    batcher.submit("b", wait, {"x": np.array([1])}, 1, LATER)
    with pytest.raises(Overloaded, match="queue is full"):
        batcher.submit("a", wait, {"x": np.array([1])}, 1, LATER)
    with pytest.raises(InvalidRequest, match="max_batch_size"):
        batcher.submit("a", wait, {"x": np.array([1, 2])}, 2, LATER)
    gate.set()
    assert first.result(10)
    with pytest.raises(TimedOut):
        late.result(10)
    batcher.close()
