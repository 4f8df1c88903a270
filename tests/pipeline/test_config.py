"""The configuration: typed, complete, and clear about what is wrong."""

from pathlib import Path

import pytest
import yaml

from foundation.errors import ConfigError
from pipeline.config import RunConfig, load_config

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("name: run\ncorpus: {documents: data}\ntrain: {steps: 100}\n")
    return path


def test_every_shipped_configuration_is_valid():
    names = sorted(path.name for path in CONFIGS.glob("*.yaml"))
    assert "demo.yaml" in names and "gpt2-small.yaml" in names
    for name in names:
        assert load_config(CONFIGS / name).name == name.removesuffix(".yaml")


def test_overrides_win_and_take_yaml_values(file):
    config = load_config(file, ["train.steps=50", "train.clip_norm=null", "train.learning_rate=3e-4"])
    assert (config.train.steps, config.train.clip_norm, config.train.learning_rate) == (50, None, 3e-4)


def test_an_override_makes_the_sections_on_its_way(file):
    assert load_config(file, ["registry.folder=elsewhere"]).registry.folder == "elsewhere"


def test_what_is_shown_reads_back_as_the_same(file, tmp_path):
    config = load_config(file)
    shown = tmp_path / "shown.yaml"
    shown.write_text(yaml.safe_dump(config.model_dump()))
    assert load_config(shown) == config


def test_a_configuration_cannot_be_changed_after_it_was_checked(file):
    with pytest.raises(ValueError, match="frozen"):
        load_config(file).train.steps = 3  # type: ignore[misc] - the point of the test


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.stepps=5", "train.stepps: unknown key; known here: steps, "),
        ("train.steps='5'", "train.steps: input should be a valid integer"),
        ("train.steps=5.5", "Received: 5.5"),
        ("train.steps=0", "greater than or equal to 1"),
        ("train.learning_rate=.nan", "train.learning_rate: input should be a finite number"),
        ("train.warmup_steps=100", "warmup_steps 100 is not below steps 100"),
        ("train.num_microbatches=3", "set num_microbatches to one of [1, 2, 4, 8, 16]"),
        ("model.num_heads=3", "num_heads 3 does not divide width 256; set num_heads to one of [1, 2, 4, 8, 16]"),
        ("model.num_kv_heads=3", "num_kv_heads 3 does not divide num_heads 4"),
        ("model.vocab_size=100", "greater than or equal to 260"),
        ("packing.policy=magic", "'concat', 'best_fit' or 'pad'"),
        ("corpus.eval_buckets=20", "leaves none of 20 hash_buckets to train on"),
        ("name=Has Capitals", "name: string should match pattern"),
        ("name=../escape", "name: string should match pattern"),
    ],
)
def test_a_wrong_value_names_key_value_and_remedy(file, override, expected):
    with pytest.raises(ConfigError) as caught:
        load_config(file, [override])
    assert expected in str(caught.value)
    assert override.split("=")[0].split(".")[0] in str(caught.value)


def test_every_fault_is_reported_at_once_with_its_origin(file):
    file.write_text("name: run\ncorpus: {documents: data}\ntrain: {steps: -1}\nmodle: {}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, ["model.width=true"])
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert any(line.startswith(f"{file}: train.steps") for line in lines)
    assert any(line.startswith(f"{file}: modle: unknown key") for line in lines)
    assert any(line.startswith("--set model.width=true: model.width") for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: [", ":1:8: not valid YAML"),
        ("name: a\nname: b\n", ":2:1: not valid YAML: key 'name' is given twice"),
        ("? [a]\n: b\n", ":1:3: not valid YAML: key ['a'] is no name"),
        ("[" * 5000, "not valid YAML: nested too deeply"),
        ("- 1\n", "holds no settings"),
        ("", "holds no settings"),
        ("name: run\n", "corpus: must be set"),
        ("name: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path, text, expected):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(path) in str(caught.value) and expected in str(caught.value)


def test_yaml_anchors_can_be_merged(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("name: a\ncorpus: &c {documents: d}\nmodel: {<<: {width: 64}, num_heads: 2}\n")
    assert load_config(path).model.width == 64


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere.yaml: no such file"):
        load_config(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("override", ["train.steps", "=5", "train..steps=5", "name.deeper=1"])
def test_a_malformed_override_is_named(file, override):
    with pytest.raises(ConfigError, match="--set"):
        load_config(file, [override])


def test_widths_of_the_mlp_follow_the_published_choices():
    base = {"name": "a", "corpus": {"documents": "d"}}
    gelu = RunConfig.model_validate({**base, "model": {"width": 768, "num_heads": 12, "mlp": "gelu"}})
    assert gelu.model.hidden_width == 3072
    swiglu = RunConfig.model_validate({**base, "model": {"width": 4096, "num_heads": 32}})
    assert swiglu.model.hidden_width == 10_944  # 8/3 x 4096 = 10922.7, up to a multiple of 32


@pytest.mark.parametrize(
    ("prop", "setting"),
    [
        ("train_config.steps", "train.steps"),
        ("model_config.width", "model.width"),
        ("custom_config.tokenizer.vocab_size", "model.vocab_size"),
        ("custom_config.tokenizer.split_digits", "tokenizer.split_digits"),
        ("rules.drift.severity", "gate.drift.severity"),
        ("eval_config.metrics_specs.thresholds.upper_bound", "evaluation.max_bits_per_byte"),
        ("keep_versions", "registry.keep_versions"),
        ("something.else", "something.else"),
    ],
)
def test_a_property_is_named_as_the_setting_behind_it(prop, setting):
    from pipeline.setting_names import setting_of

    assert setting_of(prop) == setting


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        ({"symbols": ["a b"]}, "'a b' is empty or holds a space"),
        ({"symbols": [""]}, "'' is empty"),
        ({"symbols": ["<s>"]}, "'<s>' is a special or byte piece already"),
        ({"symbols": ["<0x41>"]}, "'<0x41>' is a special or byte piece already"),
        ({"symbols": ["x", "x"]}, "one is given twice"),
        ({"model_file": "m", "sample_rate": 0.5}, "model_file is learned already"),
        ({"symbols": [f"<{number}>" for number in range(5)]}, "set it to 265 or more"),
    ],
)
def test_a_tokenizer_that_cannot_be_is_refused(tmp_path, tokenizer, expected):
    path = tmp_path / "run.yaml"
    path.write_text(
        yaml.safe_dump(
            {"name": "a", "corpus": {"documents": "d"}, "tokenizer": tokenizer, "model": {"vocab_size": 260}}
        )
    )
    with pytest.raises(ConfigError, match=expected):
        load_config(path)
