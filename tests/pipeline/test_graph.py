"""The graph: its components, their order, and what each of them depends on."""

import json

import pytest

from pipeline.config import RunConfig
from pipeline.graph import create_components, create_pipeline


def config_with(tmp_path, **sections):
    base = {"name": "run", "run_root": str(tmp_path), "corpus": {"documents": str(tmp_path / "data")}}
    return RunConfig.model_validate({**base, **sections})


def by_id(config):
    return {component.id: component for component in create_components(config)}


def upstream(component):
    return {
        channel.producer_component_id if hasattr(channel, "producer_component_id") else None
        for channel in component.inputs.values()
    }


def test_components_and_their_inputs(tmp_path):
    components = by_id(config_with(tmp_path))
    assert {name: upstream(component) for name, component in components.items()} == {
        "CorpusGen": set(),
        "StatisticsGen": {"CorpusGen"},
        "SchemaGen": {"StatisticsGen"},
        "ImportSchemaGen": set(),
        "ExampleValidator": {"StatisticsGen", "ImportSchemaGen"},
        "CorpusGate": {"CorpusGen", "StatisticsGen", "ExampleValidator", "ImportSchemaGen"},
        "Transform": {"CorpusGen", "ImportSchemaGen"},
        "SequencePacker": {"Transform"},
        "BaselineModel": set(),
        "DistributedTrainer": {"SequencePacker", "Transform"},
        "ExportValidator": {"CorpusGen", "DistributedTrainer", "SequencePacker"},
        "Evaluator": {"CorpusGen", "DistributedTrainer", "BaselineModel"},
        "RegistryPusher": {
            "DistributedTrainer",
            "Evaluator",
            "ExportValidator",
            "SequencePacker",
            "CorpusGen",
            "BaselineModel",
        },
        "EvaluationReport": {"DistributedTrainer", "Evaluator", "CorpusGen"},
    }


def test_nothing_is_learned_before_the_gate_has_passed(tmp_path):
    transform = by_id(config_with(tmp_path))["Transform"]
    assert {node.id for node in transform.upstream_nodes} >= {"CorpusGate"}


def test_the_gates_settings_are_its_rules():
    from components.corpus_gate.rules import RULES
    from pipeline.config import GateConfig

    assert set(GateConfig().rules()) == set(RULES)


def test_the_command_line_knows_the_components(tmp_path):
    from runners.cli.run_command import COMPONENT_NAMES

    assert list(by_id(config_with(tmp_path))) == list(COMPONENT_NAMES)


def test_the_pipeline_keeps_everything_under_its_run_root(tmp_path):
    pipeline = create_pipeline(config_with(tmp_path))
    assert pipeline.pipeline_info.pipeline_name == "run"
    assert pipeline.pipeline_info.pipeline_root == str(tmp_path / "run" / "artifacts")
    assert pipeline.metadata_connection_config.sqlite.filename_uri == str(tmp_path / "run" / "metadata.sqlite")
    assert pipeline.enable_cache


def test_evaluation_documents_are_never_trained_on(tmp_path):
    config = config_with(tmp_path, corpus={"documents": "d", "eval_buckets": 2, "hash_buckets": 10})
    components = by_id(config)
    splits = json.loads(components["CorpusGen"].exec_properties["output_config"])["split_config"]
    assert splits["partition_feature_name"] == "doc_id"
    assert [(split["name"], split["hash_buckets"]) for split in splits["splits"]] == [("train", 8), ("eval", 2)]
    assert json.loads(components["Transform"].exec_properties["splits_config"])["analyze"] == ["train"]
    assert json.loads(components["Evaluator"].exec_properties["example_splits"]) == ["eval"]


def test_a_warm_start_begins_with_the_baseline(tmp_path):
    warm = by_id(config_with(tmp_path, train={"warm_start": "baseline"}))
    assert "BaselineModel" in upstream(warm["DistributedTrainer"])


def properties(config):
    """Of each component, but the pusher's recipe: that is everything which decides the model."""
    return {
        component.id: {key: value for key, value in component.exec_properties.items() if key != "recipe"}
        for component in create_components(config)
    }


def recipe(config):
    return by_id(config)["RegistryPusher"].exec_properties["recipe"]


@pytest.mark.parametrize(
    ("change", "is_other"),
    [
        ({"train": {"steps": 50}}, True),
        ({"tokenizer": {"split_digits": True}}, True),
        ({"packing": {"policy": "pad"}}, True),
        ({"evaluation": {"max_bits_per_byte": 1.0}}, False),
        ({"registry": {"keep_versions": 3}}, False),
        ({"gate": {"nul": {"severity": "warn"}}}, False),
    ],
)
def test_the_recipe_is_what_decides_the_model(tmp_path, change, is_other):
    assert (recipe(config_with(tmp_path)) != recipe(config_with(tmp_path, **change))) is is_other


def test_other_documents_are_another_recipe(tmp_path):
    shard = tmp_path / "data" / "span-1" / "documents-00000-of-00001.gz"
    before = recipe(config_with(tmp_path))
    shard.parent.mkdir(parents=True)
    shard.write_bytes(b"some")
    with_some = recipe(config_with(tmp_path))
    shard.write_bytes(b"more of them")
    assert len({before, with_some, recipe(config_with(tmp_path))}) == 3


@pytest.mark.parametrize(
    ("change", "affected"),
    [
        ({"train": {"steps": 50}}, {"DistributedTrainer"}),
        ({"model": {"num_layers": 2}}, {"DistributedTrainer"}),
        ({"model": {"vocab_size": 512}}, {"Transform", "SequencePacker", "DistributedTrainer"}),
        ({"model": {"seq_len": 64}}, {"SequencePacker", "DistributedTrainer"}),
        ({"gate": {"nul": {"severity": "warn"}}}, {"CorpusGate"}),
        ({"tokenizer": {"split_digits": True}}, {"Transform"}),
        ({"packing": {"policy": "pad"}}, {"SequencePacker"}),
        ({"evaluation": {"max_bits_per_byte": 1.0}}, {"Evaluator"}),
        ({"evaluation": {"max_source_bits_per_byte": 1.0}}, {"Evaluator"}),
        ({"export": {"max_answer_s": 1.0}}, {"ExportValidator"}),
        ({"registry": {"keep_versions": 3}}, {"RegistryPusher"}),
    ],
)
def test_a_setting_changes_the_properties_of_exactly_what_uses_it(tmp_path, change, affected):
    """What depends on a changed component runs again because its inputs changed: that is the cache's part."""
    before, after = properties(config_with(tmp_path)), properties(config_with(tmp_path, **change))
    assert {name for name in before if before[name] != after[name]} == affected


@pytest.mark.parametrize(
    ("edited", "affected"),
    [
        ("trainer_module/loss.py", {"DistributedTrainer"}),
        ("trainer_module/tokenization.py", {"Transform", "DistributedTrainer"}),
        ("components/tokenizer/learning.py", {"Transform"}),
        ("components/corpus_gate/rules.py", {"CorpusGate"}),
        ("components/sequence_packer/packing.py", {"SequencePacker"}),
        ("components/export_validator/checks.py", {"ExportValidator"}),
        ("components/evaluator/metrics.py", {"Evaluator", "RegistryPusher"}),
        ("components/evaluation_report/page.py", {"EvaluationReport"}),
        ("components/registry_pusher/registry.py", {"RegistryPusher", "BaselineModel"}),
        ("components/baseline_model/executor.py", {"BaselineModel"}),
        ("schema/corpus.pbtxt", {"ImportSchemaGen"}),
        ("runners/cli/app.py", set()),
    ],
)
def test_an_edited_line_changes_the_properties_of_exactly_what_runs_it(tmp_path, edited, affected, monkeypatch):
    from pathlib import Path

    config = config_with(tmp_path)
    before = properties(config)
    original = Path.read_bytes

    def with_edit(path):
        content = original(path)
        return content + b"\n# edited\n" if str(path).endswith(edited) else content

    monkeypatch.setattr(Path, "read_bytes", with_edit)
    after = properties(config)
    assert {name for name in before if before[name] != after[name]} == affected
