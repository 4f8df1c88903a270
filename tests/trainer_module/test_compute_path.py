"""The way of computing is measured once and kept."""

import json

import pytest

from tests.trainer_module.test_training import rows, train  # noqa: F401 - a fixture
from trainer_module import compute_path
from trainer_module.config import TrainConfig


@pytest.fixture
def measured(monkeypatch):
    """Measurements that say what they are told, and how often they were asked."""
    asked = []

    def set_seconds(seconds_of):
        def measure(model_config, config, ways, num_rows):
            asked.append(ways)
            return [seconds_of[way] for way in ways]

        monkeypatch.setattr(compute_path, "measure", measure)
        return asked

    return set_seconds


def choose(tiny, folder, **settings):
    folder.mkdir(parents=True, exist_ok=True)
    chosen = compute_path.choose(tiny, TrainConfig(**{"steps": 1000, **settings}), folder, 4)
    return chosen.compile, chosen.precision


def test_what_is_set_is_not_measured(tiny, tmp_path, measured):
    asked = measured({})
    assert choose(tiny, tmp_path / "a", compile="xla") == ("xla", "float32")
    assert asked == []


def test_the_fastest_is_taken_and_kept_even_on_another_machine(tiny, tmp_path, measured, monkeypatch):
    asked = measured({("fused", "float32"): 2.0, ("xla", "float32"): 1.0})
    assert choose(tiny, tmp_path / "root" / "a") == ("xla", "float32")
    monkeypatch.setattr(compute_path, "_machine", lambda: "another")
    asked = measured({("fused", "float32"): 1.0, ("xla", "float32"): 2.0})
    assert choose(tiny, tmp_path / "root" / "a") == ("xla", "float32")  # this training has made its choice
    assert len(asked) == 1
    assert choose(tiny, tmp_path / "root" / "b") == ("fused", "float32")
    assert choose(tiny, tmp_path / "root" / "c") == ("fused", "float32")  # measured for b already
    assert len(asked) == 2


def test_precision_is_chosen_along_with_it(tiny, tmp_path, measured):
    seconds = {("fused", "float32"): 2.0, ("xla", "float32"): 3.0, ("fused", "bfloat16"): 1.0, ("xla", "bfloat16"): 4.0}
    measured(seconds)
    assert choose(tiny, tmp_path / "a", precision="auto") == ("fused", "bfloat16")


def test_a_short_training_is_not_measured(tiny, tmp_path, measured):
    asked = measured({})
    assert choose(tiny, tmp_path / "a", steps=99) == ("graph", "float32")
    assert choose(tiny, tmp_path / "b", steps=99, compile="xla", precision="auto") == ("xla", "float32")
    assert asked == []


def test_it_really_measures(tiny):
    config = TrainConfig(global_batch_size=4, num_microbatches=2)
    seconds = compute_path.measure(tiny, config, [("fused", "float32"), ("graph", "bfloat16")], 2)
    assert len(seconds) == 2 and all(0 < value < 60 for value in seconds)


def test_the_choice_is_beside_the_checkpoints(tiny, rows, tmp_path):  # noqa: F811
    trained = train(tiny, rows, tmp_path, compile="auto")
    kept = json.loads((tmp_path / trained.fingerprint / compute_path.CHOICE_NAME).read_text())
    assert (kept["compile"], trained.config.compile) == ("graph", "graph")
