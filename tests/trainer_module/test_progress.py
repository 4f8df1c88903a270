"""When a training ends: steps, tokens, minutes, no progress; and what it keeps."""

import pytest

from tests.trainer_module.test_training import losses_of, rows, train  # noqa: F401 - a fixture
from trainer_module import joining, training
from trainer_module.config import TrainConfig
from trainer_module.progress import Progress
from trainer_module.train_log import read_train_log


def test_reasons_to_end_are_said_in_words():
    config = TrainConfig(steps=100, max_tokens=1000, max_minutes=2.0, early_stop_validations=3)
    assert Progress().reason_to_end(config, 99) is None
    assert Progress().reason_to_end(config, 100) == "all 100 steps are done"
    assert Progress(tokens=999).reason_to_end(config, 5) is None
    assert Progress(tokens=1000).reason_to_end(config, 5) == "train.max_tokens 1000 is reached (1000 tokens)"
    assert Progress(seconds=119.9).reason_to_end(config, 5) is None
    assert Progress(seconds=120.0).reason_to_end(config, 5) == "train.max_minutes 2.0 is reached"
    stuck = Progress(best_step=40, validations_since_best=3)
    assert stuck.reason_to_end(config, 50) == "3 validations in a row were no better than that of step 40"


def test_the_best_validation_is_remembered():
    progress = Progress()
    for step, loss in ((10, 3.0), (20, 2.0), (30, 2.0), (40, float("nan")), (50, 2.5)):
        progress = progress.after_validation(step, loss)
    assert (progress.best_step, progress.best_loss, progress.validations_since_best) == (20, 2.0, 3)
    assert progress.after_validation(60, 1.9).validations_since_best == 0


def test_a_budget_of_tokens_ends_after_the_step_that_reaches_it(tiny, rows, tmp_path):  # noqa: F811
    whole = read_train_log(train(tiny, rows, tmp_path / "whole").log_path)
    tokens = [line["tokens"] for line in whole if "tokens" in line]
    budget = tokens[4] - 1  # reached in step 5
    ended = train(tiny, rows, tmp_path / "ended", max_tokens=budget)
    assert (ended.step, int(ended.state.step)) == (5, 5)
    assert sorted(losses_of(ended)) == [1, 2, 3, 4, 5]


def test_a_budget_counts_over_restarts(tiny, rows, tmp_path, monkeypatch):  # noqa: F811
    """Stopped by an error in step 8, after the checkpoint of step 6: tokens and seconds of those six steps count."""
    original = training.TrainLog.step
    progresses = []

    def failing(self, step, *arguments):
        original(self, step, *arguments)
        if step == 8:
            raise RuntimeError("stop")

    monkeypatch.setattr(training.TrainLog, "step", failing)
    with pytest.raises(RuntimeError):
        train(tiny, rows, tmp_path)
    monkeypatch.undo()
    restore = joining._restore

    def watched(*arguments):
        step, progress = restore(*arguments)
        progresses.append((step, progress))
        return step, progress

    monkeypatch.setattr(joining, "_restore", watched)
    trained = train(tiny, rows, tmp_path)
    ((step, progress),) = progresses
    lines = {line["step"]: line for line in read_train_log(trained.log_path) if "tokens" in line}
    assert step == 6
    assert progress.tokens == lines[6]["tokens"]
    assert progress.seconds > 0
    assert progress.best_step == 5


def scripted(monkeypatch, losses):
    """Validations that give these losses, whatever the weights."""
    given = iter(losses)
    monkeypatch.setattr(training._Validation, "__call__", lambda self: (next(given), 10))


def test_early_stop_and_keep_best_export_the_best(tiny, rows, tmp_path, monkeypatch):  # noqa: F811
    scripted(monkeypatch, [3.0, 2.0, 2.5, 2.4, 2.3, 9.9])
    settings = {"steps": 40, "eval_every": 2, "checkpoint_every": 100, "keep_checkpoints": 1}
    trained = train(tiny, rows, tmp_path, early_stop_validations=3, keep_best=True, **settings)
    assert (trained.step, trained.validation_loss) == (4, 2.0)
    assert int(trained.state.step) == 4
    folder = tmp_path / trained.fingerprint
    assert sorted(path.name for path in folder.glob("step-*")) == ["step-00000004", "step-00000010"]

    monkeypatch.undo()
    reached = train(tiny, rows, tmp_path / "other", **{**settings, "steps": 40, "max_tokens": 1})
    assert reached.step == 1  # the budget, and not the schedule, is what ends it: the first step is a step of 40


def test_without_keep_best_the_last_is_exported(tiny, rows, tmp_path, monkeypatch):  # noqa: F811
    scripted(monkeypatch, [2.0, 2.5, 2.4])
    trained = train(tiny, rows, tmp_path, steps=6, eval_every=2)
    assert (trained.step, trained.validation_loss) == (6, 2.4)
