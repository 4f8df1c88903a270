"""Executor of DistributedTrainer: from artifacts to a job, and to the launcher that does it."""

import json
import os
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import path_utils

from components.distributed_trainer.launcher import InProcess, Job, Launcher
from components.distributed_trainer.local_launcher import LocalLauncher
from foundation.errors import ConfigError
from foundation.transform_graph import tokenizer_path
from trainer_module.config import DistributionConfig
from trainer_module.replicas import CLUSTER_VARIABLE

RESTARTS = "restarts"
"""Custom property of the model: how often its training had to start again in this run."""


class Executor(base_executor.BaseExecutor):
    """Trains, in this process or in others."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Trains and exports.

        Raises:
          TokenmillError: as `Launcher.run`.
        """
        distribution = DistributionConfig.model_validate(json.loads(exec_properties["distribution_config"]))
        outcome = launcher_of(distribution).run(job_of(input_dict, output_dict, exec_properties))
        artifact_utils.get_single_instance(output_dict["model"]).set_int_custom_property(RESTARTS, outcome.restarts)


def launcher_of(distribution: DistributionConfig) -> Launcher:
    """The launcher that a configuration asks for.

    Where a cluster manager has given this process its place in a cluster, by TF_CONFIG, it is one of the workers
    itself, and starts none.
    """
    if distribution.strategy == "multi_worker" and CLUSTER_VARIABLE in os.environ:
        return InProcess()
    kind = distribution.resolved_launcher
    if kind == "local":
        return LocalLauncher(distribution)
    if kind == "kubernetes":
        raise ConfigError("distribution.launcher: kubernetes cannot be had yet; set local")
    return InProcess()


def job_of(
    input_dict: dict[str, list[types.Artifact]],
    output_dict: dict[str, list[types.Artifact]],
    exec_properties: dict[str, Any],
) -> Job:
    """What is to be trained on what, and where the results go."""
    rows = artifact_utils.get_single_instance(input_dict["rows"])
    graph = artifact_utils.get_single_instance(input_dict["transform_graph"])
    model = artifact_utils.get_single_instance(output_dict["model"])
    run = artifact_utils.get_single_instance(output_dict["model_run"])
    baselines = input_dict.get("baseline_model") or []
    return Job(
        train_files=[os.path.join(rows.uri, "Split-train")],
        eval_files=[os.path.join(rows.uri, "Split-eval")],
        serving_model_dir=path_utils.serving_model_dir(model.uri),
        model_run_dir=run.uri,
        custom_config={
            "model": json.loads(exec_properties["model_config"]),
            "train": json.loads(exec_properties["train_config"]),
            "distribution": json.loads(exec_properties["distribution_config"]),
            "tokenizer": str(tokenizer_path(graph.uri)),
            "checkpoint_root": exec_properties["checkpoint_root"],
            "code_hash": exec_properties["code_hash"],
            "baseline": path_utils.serving_model_dir(baselines[0].uri) if baselines else None,
        },
    )
