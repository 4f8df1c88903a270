"""A training that is stopped and started again is, bit for bit, the one that was not stopped."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from foundation.errors import TrainingError
from tests.trainer_module.conftest import random_rows, write_rows
from trainer_module import training
from trainer_module.config import TrainConfig
from trainer_module.parameters import init
from trainer_module.train_log import read_train_log

SETTINGS = {
    "steps": 12,
    "warmup_steps": 2,
    "global_batch_size": 4,
    "log_every": 1,
    "eval_every": 5,
    "checkpoint_every": 3,
    "compile": "graph",
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    root = tmp_path_factory.mktemp("rows")
    train = write_rows(root / "train", *random_rows(10, 16), shards=2)
    return train, write_rows(root / "eval", *random_rows(6, 16, seed=1))


def train(config, rows, folder, **settings):
    return training.train(config, TrainConfig(**{**SETTINGS, **settings}), *rows, folder)


def assert_same(one, other):
    for name, variable in one.state.variables().items():
        np.testing.assert_array_equal(variable, other.state.variables()[name], err_msg=name)
    assert one.validation_loss == other.validation_loss


def losses_of(trained):
    return {line["step"]: line["loss"] for line in read_train_log(trained.log_path) if "loss" in line}


KILLED = """
import json, sys
from pathlib import Path
from trainer_module import training
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.train_log import TrainLog

original = TrainLog.step
def step(self, number, *arguments):
    original(self, number, *arguments)
    if number == int(sys.argv[1]):
        print("reached", flush=True)
        sys.stdin.read()  # until killed
TrainLog.step = step
model, train, rows, folder = json.loads(sys.argv[2])
training.train(ModelConfig(**model), TrainConfig(**train), Path(rows[0]), Path(rows[1]), Path(folder))
"""


@pytest.mark.parametrize("killed_at", [2, 7])
def test_killed_and_started_again_equals_not_killed(tiny, rows, tmp_path, killed_at):
    """Step 2 comes before the first checkpoint, step 7 after the one of step 6."""
    whole = train(tiny, rows, tmp_path / "whole")
    arguments = json.dumps([tiny.model_dump(), SETTINGS, [str(path) for path in rows], str(tmp_path / "killed")])
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(killed_at), arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert process.stdout.readline() == b"reached\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)

    resumed = train(tiny, rows, tmp_path / "killed")
    assert_same(whole, resumed)
    assert losses_of(whole) == losses_of(resumed)
    assert sorted(losses_of(resumed)) == list(range(1, 13))


def test_a_finished_training_is_not_repeated(tiny, rows, tmp_path):
    first = train(tiny, rows, tmp_path)
    lines = read_train_log(first.log_path)
    again = train(tiny, rows, tmp_path, log_every=2)  # watched differently, but the same training
    assert_same(first, again)
    assert read_train_log(again.log_path) == lines


def test_another_training_has_a_folder_of_its_own(tiny, rows, tmp_path):
    one, other = train(tiny, rows, tmp_path), train(tiny, rows, tmp_path, seed=1)
    assert one.fingerprint != other.fingerprint
    assert {path.name for path in tmp_path.iterdir()} == {one.fingerprint, other.fingerprint}


def test_other_rows_of_the_same_shape_are_another_training(tiny, rows, tmp_path):
    """Only a hash of a shard tells them apart; going on with the other's weights would be silently wrong."""
    import dataclasses
    import shutil

    from foundation.rows import PackingManifest

    other = tmp_path / "other"
    shutil.copytree(rows[0], other)
    manifest = PackingManifest.load(other)
    dataclasses.replace(manifest, shard_sha256=["00", "01"]).save(other)
    one, two = train(tiny, rows, tmp_path / "c", steps=3), train(tiny, (other, rows[1]), tmp_path / "c", steps=3)
    assert one.fingerprint != two.fingerprint


def test_the_log_tells_every_step_and_validation(tiny, rows, tmp_path):
    trained = train(tiny, rows, tmp_path)
    lines = read_train_log(trained.log_path)
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 13))
    assert [line["step"] for line in lines if "validation_loss" in line] == [5, 10, 12]
    assert lines[-1]["validation_loss"] == trained.validation_loss
    assert [line["tokens"] for line in lines if "tokens" in line] == sorted(
        line["tokens"] for line in lines if "tokens" in line
    )


def test_rows_of_another_length_or_vocabulary_are_refused(tiny, rows, tmp_path):
    with pytest.raises(TrainingError, match=r"rows of 16 tokens do not fit model.seq_len 32"):
        train(tiny.model_copy(update={"seq_len": 32}), rows, tmp_path)
    with pytest.raises(TrainingError, match=r"vocabulary of 300 pieces do not fit model.vocab_size 400"):
        train(tiny.model_copy(update={"vocab_size": 400}), rows, tmp_path)


def test_a_loss_that_is_no_number_ends_the_training_with_a_remedy(tiny, rows, tmp_path, monkeypatch):
    def broken(config, seed):
        return {name: value * float("nan") for name, value in init(config, seed).items()}

    monkeypatch.setattr("trainer_module.state.init", broken)
    with pytest.raises(TrainingError, match=r"step 1: the gradient is not finite.*lower train.learning_rate"):
        train(tiny, rows, tmp_path)
