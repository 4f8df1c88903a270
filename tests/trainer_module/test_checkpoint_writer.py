"""A checkpoint written aside holds the state of the moment in which it was asked for."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from foundation import atomic
from foundation.errors import HostError
from tests.trainer_module.test_training import SETTINGS, assert_same, losses_of, rows, train  # noqa: F401
from trainer_module import checkpoint
from trainer_module.checkpoint_writer import CheckpointWriter
from trainer_module.config import TrainConfig


def test_what_is_saved_is_the_state_at_the_call(tmp_path, monkeypatch):
    variable = tf.Variable([1.0, 2.0])
    release = threading.Event()
    original = checkpoint.save

    def slow(*arguments):
        assert release.wait(60)
        return original(*arguments)

    monkeypatch.setattr(checkpoint, "save", slow)
    with CheckpointWriter(tmp_path, TrainConfig(), "print") as writer:
        writer.save(3, {"w": variable}, {}, None)
        variable.assign([7.0, 8.0])  # the next step
        variable.assign_add([1.0, 1.0])
        release.set()
    assert checkpoint.restore_newest(tmp_path, {"w": variable}, "print").step == 3
    assert variable.numpy().tolist() == [1.0, 2.0]


def test_one_that_cannot_be_written_is_an_error_and_the_earlier_ones_stay(tmp_path, monkeypatch):
    variable = tf.Variable([1.0])
    with CheckpointWriter(tmp_path, TrainConfig(), "print") as writer:
        writer.save(1, {"w": variable}, {}, None)
        writer.wait()

        def full_disk(folder):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(atomic, "sync_tree", full_disk)
        writer.save(2, {"w": variable}, {}, None)
        with pytest.raises(HostError, match=r"could not be written.*No space left.*earlier ones are untouched"):
            writer.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_aside_and_in_line_give_the_same_training(tiny, rows, tmp_path):  # noqa: F811
    assert_same(train(tiny, rows, tmp_path / "a"), train(tiny, rows, tmp_path / "b", async_checkpoints=False))


KILLED_IN_SAVE = """
import json, sys, time
from pathlib import Path
from foundation import atomic
from trainer_module import training
from trainer_module.config import ModelConfig, TrainConfig

original, saves = atomic.sync_tree, 0
def stuck(folder):
    global saves
    saves += 1
    if saves == 2:  # all is written, nothing is renamed yet
        print("in save", flush=True)
        time.sleep(600)
    original(folder)
atomic.sync_tree = stuck
model, settings, rows, folder = json.loads(sys.argv[1])
training.train(ModelConfig(**model), TrainConfig(**settings), Path(rows[0]), Path(rows[1]), Path(folder))
"""


@pytest.mark.parametrize("extra", [{}, {"precision": "float16", "ema_decay": 0.9, "optimizer": "muon"}])
def test_killed_inside_a_save_equals_not_killed(tiny, rows, tmp_path, extra):  # noqa: F811
    import json

    config = tiny.model_copy(update={"dropout": 0.1})
    whole = train(config, rows, tmp_path / "whole", **extra)
    arguments = json.dumps(
        [config.model_dump(), {**SETTINGS, **extra}, [str(path) for path in rows], str(tmp_path / "k")]
    )
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_IN_SAVE, arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert process.stdout.readline() == b"in save\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    (folder,) = (tmp_path / "k").iterdir()
    assert [path.name for path in folder.glob("step-*")] == ["step-00000003"]
    assert list(folder.glob(".staging-*"))

    resumed = train(config, rows, tmp_path / "k", **extra)
    assert not list(folder.glob(".staging-*"))
    assert_same(whole, resumed)
    assert losses_of(whole) == losses_of(resumed)
    for name, variable in whole.state.variables().items():
        np.testing.assert_array_equal(variable, resumed.state.variables()[name], err_msg=name)
