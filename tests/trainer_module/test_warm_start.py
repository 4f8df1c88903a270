"""A training that begins with an exported model: its weights and nothing else, or a refusal that says why."""

import hashlib
import json
import shutil

import numpy as np
import pytest

from foundation.errors import ModelError, TrainingError
from foundation.rows import PackingManifest
from tests.trainer_module.conftest import write_rows
from tests.trainer_module.test_training import SETTINGS
from trainer_module import export, training, warm_start
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.parameters import init
from trainer_module.state import TrainState


@pytest.fixture
def sha256(tokenizer_model) -> str:
    return hashlib.sha256(tokenizer_model).hexdigest()


@pytest.fixture
def rows(tmp_path, sha256):
    """Packed rows that say which tokenizer made them."""
    random = np.random.default_rng(3)
    folder = write_rows(tmp_path / "rows", random.integers(4, 300, [32, 17]), np.ones([32, 17], int))
    path = folder / "packing.json"
    path.write_text(path.read_text().replace('"00"', f'"{sha256}"'))
    assert PackingManifest.load(folder).tokenizer_sha256 == sha256
    return folder


@pytest.fixture
def baseline(tmp_path, tiny, tokenizer_model, sha256):
    """An exported model with the weights of seed 5."""
    folder = tmp_path / "baseline"
    export.export(folder, tiny, init(tiny, 5), tokenizer_model, {"tokenizer_sha256": sha256})
    return folder


def test_the_weights_are_taken_under_their_names(tiny, rows, baseline):
    """Running means of them, too; moments stay zero."""
    state = TrainState(tiny, TrainConfig(seed=1, ema_decay=0.9))
    warm_start.take_weights(state, tiny, rows, baseline)
    expected = init(tiny, 5)
    for group in (state.params, state.averages):
        assert group.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(group[name].numpy(), value.numpy(), err_msg=name)
    assert all(not moment.numpy().any() for moment in state.first_moments.values())
    assert int(state.step) == 0


def test_a_training_goes_on_from_them_and_is_one_of_its_own(tiny, rows, baseline, tmp_path):
    """Its first loss is that of the baseline's weights; with other weights it is another training."""
    config = TrainConfig(**{**SETTINGS, "steps": 2, "warmup_steps": 1, "learning_rate": 1e-9, "weight_decay": 0.0})

    def train(**begin):
        return training.train(tiny, config, rows, rows, tmp_path / "checkpoints", **begin)

    warm, cold = train(baseline=baseline), train()
    assert warm.fingerprint != cold.fingerprint
    for name, value in init(tiny, 5).items():
        np.testing.assert_allclose(warm.state.params[name].numpy(), value.numpy(), atol=1e-7)
    assert abs(warm.validation_loss - cold.validation_loss) > 1e-6
    assert train(baseline=baseline).fingerprint == warm.fingerprint


def test_without_a_baseline_it_begins_as_ever(tiny, rows):
    state = TrainState(tiny, TrainConfig(seed=1))
    warm_start.take_weights(state, tiny, rows, None)
    name, value = next(iter(init(tiny, 1).items()))
    np.testing.assert_array_equal(state.params[name].numpy(), value.numpy())
    assert warm_start.decisive_values(None) == {}


def test_another_tokenizer_is_refused(tiny, rows, baseline):
    path = baseline / "assets.extra" / "tokenmill.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer_sha256": "ab"}))
    with pytest.raises(TrainingError, match=r"another tokenizer \(SHA-256 ab, ours .*tokenizer.model_file"):
        _take(tiny, rows, baseline)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 64}, r"embedding is \[300, 32\], \[300, 64\] here"),
        ({"num_layers": 3}, r"blocks/2/attention_norm/scale is missing.*and \d+ more"),
        ({"num_layers": 1}, r"blocks/1/attention_norm/scale has no place"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(tiny, rows, baseline, change, message):
    with pytest.raises(TrainingError, match=message):
        _take(tiny.model_copy(update=change), rows, baseline)


def test_a_model_that_says_nothing_of_itself_is_refused(tiny, rows, baseline):
    (baseline / "assets.extra" / "tokenmill.json").unlink()
    with pytest.raises(ModelError, match="does not say what the baseline is"):
        _take(tiny, rows, baseline)


def test_weights_that_cannot_be_read_are_refused(tiny, rows, baseline):
    shutil.rmtree(baseline / "variables")
    with pytest.raises(ModelError, match="weights cannot be read"):
        _take(tiny, rows, baseline)


def _take(config: ModelConfig, rows, baseline) -> None:
    warm_start.take_weights(TrainState(config, TrainConfig(seed=1)), config, rows, baseline)
