"""A training that was stopped is never silently left for another, nor a changed one taken for it."""

import json

import pytest

from foundation.errors import TrainingError
from tests.trainer_module.conftest import random_rows, write_rows
from tests.trainer_module.test_training import SETTINGS, rows  # noqa: F401 - a fixture
from trainer_module import training
from trainer_module.config import TrainConfig
from trainer_module.identity import IDENTITY_NAME


def train(config, rows, folder, code="1", **settings):  # noqa: F811
    return training.train(config, TrainConfig(**{**SETTINGS, **settings}), *rows, folder, code)


def stop_at(monkeypatch, step):
    """Makes training fail in a step after the first checkpoint."""
    original = training.TrainLog.step

    def failing(self, number, *arguments):
        original(self, number, *arguments)
        if number == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(training.TrainLog, "step", failing)


@pytest.fixture
def stopped(tiny, rows, tmp_path, monkeypatch):  # noqa: F811
    """The folder of a training that was stopped in step 5."""
    with monkeypatch.context() as patch:
        stop_at(patch, 5)
        with pytest.raises(KeyboardInterrupt):
            train(tiny, rows, tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"global_batch_size": 2}, "train.global_batch_size: 4 then, 2 now"),
        ({"seed": 3}, "train.seed: 0 then, 3 now"),
        ({"learning_rate": 0.5}, "train.learning_rate: 0.001 then, 0.5 now"),
        ({"input": "stream"}, "train.input: None then, 'stream' now"),
    ],
)
def test_another_setting_is_refused_with_both_values(tiny, rows, stopped, settings, expected):  # noqa: F811
    with pytest.raises(TrainingError) as caught:
        train(tiny, rows, stopped, **settings)
    assert expected in str(caught.value)
    assert "set train.abandon_unfinished: true" in str(caught.value)


def test_another_model_or_tokenizer_is_refused(tiny, rows, stopped, tmp_path):  # noqa: F811
    import dataclasses

    from foundation.rows import PackingManifest

    with pytest.raises(TrainingError, match=r"model.num_layers: 2 then, 1 now"):
        train(tiny.model_copy(update={"num_layers": 1}), rows, stopped)
    other = write_rows(tmp_path / "elsewhere", *random_rows(10, 16), shards=2)
    dataclasses.replace(PackingManifest.load(other), tokenizer_sha256="11").save(other)
    with pytest.raises(TrainingError, match=r"rows.tokenizer_sha256: '00' then, '11' now"):
        train(tiny, (other, rows[1]), stopped)


def test_what_only_watches_is_not_another_training(tiny, rows, stopped):  # noqa: F811
    trained = train(tiny, rows, stopped, log_every=3, checkpoint_every=4, async_checkpoints=False, input="memory")
    assert trained.step == 12
    assert [path.name for path in stopped.iterdir()] == [trained.fingerprint]


def test_one_that_diverged_does_not_stand_in_the_way(tiny, rows, tmp_path, monkeypatch):  # noqa: F811
    """The error says to lower the learning rate: whoever does so must not be refused for it."""
    original = training.TrainLog.flush

    def diverging(self, step):
        original(self, step)
        if step == 5:
            raise TrainingError("step 5: the gradient is not finite")

    with monkeypatch.context() as patch:
        patch.setattr(training.TrainLog, "flush", diverging)
        with pytest.raises(TrainingError, match="not finite"):
            train(tiny, rows, tmp_path)
    assert list(tmp_path.glob("*/step-*"))
    assert train(tiny, rows, tmp_path, learning_rate=1e-4).step == 12


def test_it_can_be_abandoned(tiny, rows, stopped):  # noqa: F811
    before = {path.name for path in stopped.iterdir()}
    trained = train(tiny, rows, stopped, seed=3, abandon_unfinished=True)
    assert {path.name for path in stopped.iterdir()} == before | {trained.fingerprint}
    assert trained.fingerprint not in before


def test_edited_code_goes_on_with_what_was_stopped_and_says_so(tiny, rows, stopped, caplog):  # noqa: F811
    trained = train(tiny, rows, stopped, code="2")
    assert "the code has changed since" in caplog.text
    (folder,) = stopped.iterdir()
    identity = json.loads((folder / IDENTITY_NAME).read_text())
    assert (identity["codes"], identity["finished"]) == (["1", "2"], True)
    assert trained.step == 12


def test_edited_code_trains_anew_what_had_ended(tiny, rows, tmp_path):  # noqa: F811
    one, two = train(tiny, rows, tmp_path), train(tiny, rows, tmp_path, code="2")
    assert one.fingerprint != two.fingerprint
    assert len(list(tmp_path.iterdir())) == 2
