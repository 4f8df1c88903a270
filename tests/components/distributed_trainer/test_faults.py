"""Nothing that happens to a worker spoils the training: afterwards it is, bit for bit, the one without the fault."""

import os
import random
import signal
import subprocess
import threading

import numpy as np
import pytest

from foundation.errors import HostError, PipelineError, PreemptedError, TrainingError
from tests.components.distributed_trainer.clusters import Cluster, left_behind, write_splits

pytestmark = pytest.mark.slow

SLOWLY = {"pause_s": 0.1}
"""So that a fault at a step finds the training there."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    root = tmp_path_factory.mktemp("rows")
    write_splits(root)
    return root


@pytest.fixture(scope="module")
def undisturbed(rows, tmp_path_factory):
    return Cluster(rows, tmp_path_factory.mktemp("undisturbed") / "c").run()


def assert_same(one, other):
    assert one.digests == other.digests
    assert one.losses == other.losses
    assert one.validation_loss == other.validation_loss
    assert one.variables.keys() == other.variables.keys()
    for name, value in one.variables.items():
        np.testing.assert_array_equal(value, other.variables[name], err_msg=name)
    assert one.weights == other.weights
    assert left_behind() == []


def send(number, rank):
    return lambda pids: os.kill(pids[rank], number)


@pytest.mark.parametrize("rank", [0, 1], ids=["leader", "other"])
def test_a_killed_worker_starts_all_again(undisturbed, rows, tmp_path, rank):
    cluster = Cluster(rows, tmp_path / "c")
    killer = cluster.at_step(random.randint(2, 15), send(signal.SIGKILL, rank))
    result = cluster.run(settings=SLOWLY, max_restarts=1)
    killer.join()
    assert result.restarts == 1
    assert_same(undisturbed, result)


def test_killed_inside_a_save(undisturbed, rows, tmp_path):
    """The leader, while the folder of an unfinished checkpoint lies beside the finished ones."""
    cluster = Cluster(rows, tmp_path / "c")

    def saving():
        return any(path.name.startswith(".") and path.is_dir() for path in cluster.checkpoints().glob(".*"))

    killer = cluster.when(saving, send(signal.SIGKILL, 0))
    result = cluster.run(settings=SLOWLY, max_restarts=1)
    killer.join()
    assert result.restarts == 1
    assert_same(undisturbed, result)


def test_a_stopped_worker_counts_as_dead(undisturbed, rows, tmp_path, caplog):
    cluster = Cluster(rows, tmp_path / "c")
    stopper = cluster.at_step(6, send(signal.SIGSTOP, 1))
    result = cluster.run(settings=SLOWLY, max_restarts=1, heartbeat_timeout_s=4.0)
    stopper.join()
    assert "worker 1 has given no sign of life" in caplog.text
    assert_same(undisturbed, result)


def test_sigterm_to_one_worker_has_all_save_and_leave(undisturbed, rows, tmp_path):
    cluster = Cluster(rows, tmp_path / "c")
    asker = cluster.at_step(6, send(signal.SIGTERM, 1))
    with pytest.raises(PreemptedError, match=r"has saved step \d+; run again"):
        cluster.run(settings=SLOWLY)
    asker.join()
    assert left_behind() == []
    newest = max(cluster.checkpoints().glob("step-*"))
    assert int(newest.name.removeprefix("step-")) == max(line["step"] for line in cluster.lines())
    assert_same(undisturbed, cluster.run())


def test_a_worker_that_starts_late_is_waited_for(undisturbed, rows, tmp_path):
    result = Cluster(rows, tmp_path / "c").run(settings={"late_rank": 0, "late_s": 20.0})
    assert_same(undisturbed, result)


def test_a_worker_that_never_starts_ends_the_wait(rows, tmp_path):
    with pytest.raises(PipelineError, match=r"worker 1 did not start within distribution.startup_timeout_s 12"):
        Cluster(rows, tmp_path / "c").run(settings={"absent_rank": 1}, startup_timeout_s=12.0)
    assert left_behind() == []


@pytest.mark.parametrize("damage", ["truncated", "flipped byte", "no data"])
def test_a_damaged_checkpoint_is_passed_over(undisturbed, rows, tmp_path, damage):
    """The newest one is damaged while nobody runs; the one before it is taken."""
    cluster = Cluster(rows, tmp_path / "c")
    with pytest.raises(PreemptedError):
        cluster.run(settings={"stop_after": 10})
    newest = max(cluster.checkpoints().glob("step-*"))
    assert newest.name == "step-00000010"
    (data,) = newest.glob("variables.data-*")
    if damage == "truncated":
        data.write_bytes(data.read_bytes()[:-100])
    elif damage == "flipped byte":
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
    else:
        data.unlink()
    assert_same(undisturbed, cluster.run())


def test_a_gradient_that_is_not_finite_ends_the_training_without_a_restart(rows, tmp_path):
    with pytest.raises(TrainingError, match=r"worker \d: step 3: the gradient is not finite"):
        Cluster(rows, tmp_path / "c").run(settings={"bad_rank": 1, "bad_step": 3}, max_restarts=3)
    assert left_behind() == []


def test_an_error_of_one_worker_is_told_and_not_the_others_echo(rows, tmp_path, caplog):
    """The others wait for it in a collective; that fails, too, and later."""
    with pytest.raises(PipelineError, match="after 1 restarts: worker 1: RuntimeError: out of paper"):
        Cluster(rows, tmp_path / "c").run(settings={"error_rank": 1, "error_step": 3}, max_restarts=1)
    assert "worker 1: RuntimeError: out of paper; all start again in 0.1 s (1 of 1)" in caplog.text
    assert left_behind() == []


def test_after_the_last_restart_the_first_workers_fate_is_told(rows, tmp_path):
    cluster = Cluster(rows, tmp_path / "c")
    killer = cluster.at_step(3, send(signal.SIGKILL, 1))
    with pytest.raises(PipelineError, match="training failed: worker 1 was ended by SIGKILL"):
        cluster.run(settings=SLOWLY, max_restarts=0)
    killer.join()
    assert left_behind() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount the small file system that fills up")
def test_a_full_disk_during_a_save(undisturbed, rows, tmp_path):
    """Two checkpoints fit, a third does not; once there is room, training goes on as if nothing had been."""
    cluster = Cluster(rows, tmp_path / "c")
    folder = cluster.folder / "checkpoints"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        (folder / "ballast").write_bytes(b"0" * 110_000)
        with pytest.raises(HostError, match="a checkpoint could not be written.*free some space"):
            cluster.run()
        assert left_behind() == []
        (folder / "ballast").unlink()
        subprocess.run(["mount", "-o", "remount,size=16m", folder], check=True)
        assert_same(undisturbed, cluster.run())
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_second_training_in_the_same_folder_is_refused(undisturbed, rows, tmp_path):
    """By another process, while the first one runs on undisturbed."""
    first, second = Cluster(rows, tmp_path / "c"), Cluster(rows, tmp_path / "d")
    (second.folder / "checkpoints").symlink_to(first.folder / "checkpoints")
    errors = []

    def intrude(_):
        try:
            second.run("none", 1)
        except TrainingError as error:
            errors.append(str(error))

    done = threading.Event()

    def watched(pids):
        try:
            intrude(pids)
        finally:
            done.set()

    intruder = first.at_step(2, watched)
    result = first.run(settings={"pause_s": 0.7})
    intruder.join()
    (error,) = errors
    assert "another process is at work on this training; wait for it or stop it" in error
    assert_same(undisturbed, result)
