"""A process's place among the others, and its share of a batch."""

import json
import os
import signal

import pytest

from foundation.errors import ConfigError
from trainer_module.config import DistributionConfig, TrainConfig
from trainer_module.preemption import stop_requests
from trainer_module.replicas import ONE, Replicas, make_replicas, place_in_cluster
from trainer_module.step import share_of


def place(monkeypatch, cluster, kind, index):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}))
    return place_in_cluster()


def test_ranks_are_those_of_tf_config(monkeypatch):
    assert place(monkeypatch, {"worker": ["a:1", "b:1", "c:1"]}, "worker", 2) == (2, 3)
    assert place(monkeypatch, {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "chief", 0) == (0, 3)
    assert place(monkeypatch, {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "worker", 0) == (1, 3)
    assert place(monkeypatch, {"chief": ["a:1"]}, "chief", 0) == (0, 1)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"cluster": {"worker": ["a:1"]}}', '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}'],
)
def test_a_cluster_that_is_not_understood_is_refused(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ConfigError, match=r"TF_CONFIG: multi_worker training needs the cluster.*Received: "):
        place_in_cluster()


def test_a_place_outside_of_the_cluster_is_refused(monkeypatch):
    for kind, index in (("worker", 2), ("evaluator", 0), ("worker", -1)):
        with pytest.raises(ConfigError, match="TF_CONFIG"):
            place(monkeypatch, {"worker": ["a:1", "b:1"]}, kind, index)


def replicas(count, rank, num_workers):
    made = Replicas(None, rank, num_workers)
    made.count, made.num_local = count, count // num_workers
    made.first_local = rank * made.num_local
    return made


@pytest.mark.parametrize(("count", "num_workers"), [(1, 1), (2, 2), (3, 3), (4, 2), (7, 7), (10, 5)])
@pytest.mark.parametrize(("batch", "microbatches"), [(8, 1), (8, 4), (12, 3)])
def test_shares_are_the_whole_batch_once(count, num_workers, batch, microbatches):
    train = TrainConfig(steps=30, global_batch_size=batch, num_microbatches=microbatches)
    places = []
    for rank in range(num_workers):
        share = share_of(train, replicas(count, rank, num_workers))
        assert share.num_rows == share.rows_per_replica * (count // num_workers)
        assert share.rows_per_replica == share.rows_per_microbatch * microbatches
        places += range(share.first_place, share.first_place + share.filled_rows)
    assert places == list(range(batch))


def test_one_process_takes_the_batch_as_it_is():
    share = share_of(TrainConfig(steps=30, global_batch_size=8, num_microbatches=2), ONE)
    assert share == (0, 8, 8, 8, 4)
    assert ONE.total([1.5, 2.0]) == [1.5, 2.0]
    assert ONE.broadcast({"a": 1}) == {"a": 1}
    ONE.barrier()


def test_no_strategy_needs_no_cluster():
    made = make_replicas(DistributionConfig())
    assert (made.rank, made.num_workers, made.count, made.is_chief) == (0, 1, 1, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_workers": 2}, "num_workers 2 needs strategy: multi_worker, not none"),
        ({"num_devices": 2}, "num_devices 2 needs strategy: mirrored, not none"),
        ({"strategy": "multi_worker", "num_workers": 2, "launcher": "in_process"}, "set launcher: local"),
        ({"launcher": "kubernetes"}, "launcher kubernetes needs strategy: multi_worker"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        DistributionConfig(**settings)


def test_sigterm_is_a_request_and_the_handler_is_gone_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    with stop_requests() as asked:
        assert not asked()
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)  # from an impatient one: still no more than a request
        assert asked()
    assert signal.getsignal(signal.SIGTERM) == before
