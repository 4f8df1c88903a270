"""From artifacts to the trainer's arguments."""

import json

from tfx.types import standard_artifacts

from components.distributed_trainer.executor import job_of, launcher_of
from components.distributed_trainer.launcher import InProcess
from components.distributed_trainer.local_launcher import LocalLauncher
from components.sequence_packer.artifact import PackedRows
from trainer_module.config import DistributionConfig


def artifact(kind, uri):
    made = kind()
    made.uri = uri
    return [made]


OUTPUTS_AND_PROPERTIES = (
    {
        "model": artifact(standard_artifacts.Model, "/a/model"),
        "model_run": artifact(standard_artifacts.ModelRun, "/a/run"),
    },
    {
        "model_config": json.dumps({"width": 32}),
        "train_config": json.dumps({"steps": 7}),
        "distribution_config": json.dumps({"num_workers": 1}),
        "checkpoint_root": "/checkpoints",
        "code_hash": "0",
    },
)


def inputs(folder):
    asset = folder / "transform_fn" / "assets" / "spm"
    asset.parent.mkdir(parents=True)
    asset.touch()
    return {
        "rows": artifact(PackedRows, "/a/rows"),
        "transform_graph": artifact(standard_artifacts.TransformGraph, str(folder)),
    }


def test_arguments_name_the_places_of_the_artifacts(tmp_path):
    arguments = job_of(inputs(tmp_path), *OUTPUTS_AND_PROPERTIES)
    assert arguments.train_files == ["/a/rows/Split-train"]
    assert arguments.eval_files == ["/a/rows/Split-eval"]
    assert arguments.serving_model_dir == "/a/model/Format-Serving"
    assert arguments.model_run_dir == "/a/run"
    assert arguments.custom_config == {
        "model": {"width": 32},
        "train": {"steps": 7},
        "distribution": {"num_workers": 1},
        "tokenizer": str(tmp_path / "transform_fn" / "assets" / "spm"),
        "checkpoint_root": "/checkpoints",
        "code_hash": "0",
        "baseline": None,
    }


def test_the_model_to_start_from_is_the_baselines_serving_model(tmp_path):
    given = inputs(tmp_path) | {"baseline_model": artifact(standard_artifacts.Model, "/a/baseline")}
    arguments = job_of(given, *OUTPUTS_AND_PROPERTIES)
    assert arguments.custom_config["baseline"] == "/a/baseline/Format-Serving"


def test_the_launcher_is_the_strategys(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert isinstance(launcher_of(DistributionConfig()), InProcess)
    assert isinstance(launcher_of(DistributionConfig(launcher="local")), LocalLauncher)
    assert isinstance(launcher_of(DistributionConfig(strategy="mirrored", num_devices=2)), LocalLauncher)
    assert isinstance(launcher_of(DistributionConfig(strategy="multi_worker", num_workers=2)), LocalLauncher)


def test_a_worker_of_somebody_elses_cluster_starts_none(monkeypatch):
    """With TF_CONFIG given, this process is one of the workers."""
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {}}))
    assert isinstance(launcher_of(DistributionConfig(strategy="multi_worker", num_workers=2)), InProcess)
    assert isinstance(launcher_of(DistributionConfig(strategy="mirrored", num_devices=2)), LocalLauncher)
