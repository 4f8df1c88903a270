"""The same training, however many workers share it: same rows, same losses, same weights."""

import numpy as np
import pytest

from foundation.errors import PreemptedError
from tests.components.distributed_trainer.clusters import Cluster, write_splits

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    root = tmp_path_factory.mktemp("rows")
    write_splits(root)
    return root


@pytest.fixture(scope="module")
def alone(rows, tmp_path_factory):
    """Trained by one process without a strategy, 20 steps of 8 rows."""
    return Cluster(rows, tmp_path_factory.mktemp("alone") / "c").run("none", 1)


def assert_equal_within_bounds(one, other):
    assert one.digests == other.digests
    np.testing.assert_allclose(one.losses, other.losses, rtol=0, atol=1e-6 * max(one.losses))
    assert one.validation_loss == pytest.approx(other.validation_loss, abs=1e-5)
    for name, value in one.variables.items():
        np.testing.assert_allclose(value, other.variables[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_any_number_of_workers_trains_the_same(alone, rows, tmp_path, num_workers):
    """Rows are made so that workers have unequal numbers of valid tokens: the global number divides."""
    shared = Cluster(rows, tmp_path / "c").run("multi_worker", num_workers)
    assert_equal_within_bounds(alone, shared)
    assert len(set(shared.weights)) == 1  # bit for bit the same in every worker


def test_several_devices_of_one_process_train_the_same(alone, rows, tmp_path):
    assert_equal_within_bounds(alone, Cluster(rows, tmp_path / "c").run("mirrored", 1, num_devices=2))


def test_the_number_of_workers_may_change_from_run_to_run(alone, rows, tmp_path):
    """2, then 3, which do not divide the 8 rows of a batch, then 1."""
    cluster = Cluster(rows, tmp_path / "c")
    with pytest.raises(PreemptedError, match="has saved step 7"):
        cluster.run("multi_worker", 2, settings={"stop_after": 7})
    with pytest.raises(PreemptedError, match="has saved step 14"):
        cluster.run("multi_worker", 3, settings={"stop_after": 14})
    assert_equal_within_bounds(alone, cluster.run("none", 1))


def test_gradients_are_reduced_once_a_step_whatever_the_accumulation(rows, tmp_path):
    """The collectives of a step's graph: some packs of gradients, none of them in the loop over microbatches."""
    plain = Cluster(rows, tmp_path / "plain", steps=3).run("multi_worker", 2)
    accumulated = Cluster(rows, tmp_path / "accumulated", steps=3, num_microbatches=4).run("multi_worker", 2)
    assert plain.collectives == accumulated.collectives == "[1, 0]"


def test_a_gradient_that_overflows_in_one_worker_skips_the_step_in_all(rows, tmp_path):
    settings = {"bad_rank": 1, "bad_step": 3}
    result = Cluster(rows, tmp_path / "c", steps=5, precision="float16").run("multi_worker", 2, settings=settings)
    steps = [line for line in result.lines if "loss" in line]
    assert [line["skipped_steps"] for line in steps] == [0, 0, 1, 0, 0]
    assert [line["loss_scale"] for line in steps] == [65536, 65536, 65536, 32768, 32768]
    assert result.variables["num_updates"] == 4
    assert len(set(result.weights)) == 1
