"""Executor of DistributedTrainer: from artifacts to `run_fn`'s arguments."""

import json
import os
from typing import Any

from tfx import types
from tfx.components.trainer.fn_args_utils import FnArgs
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import path_utils

from foundation.transform_graph import tokenizer_path


class Executor(base_executor.BaseExecutor):
    """Trains in this process."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Trains and exports.

        Raises:
          TrainingError: as `trainer_module.training.train`.
        """
        # Imported here: a process that only makes or compiles the graph has no use for TensorFlow's start-up.
        from trainer_module.run import run_fn

        run_fn(fn_args_of(input_dict, output_dict, exec_properties))


def fn_args_of(
    input_dict: dict[str, list[types.Artifact]],
    output_dict: dict[str, list[types.Artifact]],
    exec_properties: dict[str, Any],
) -> FnArgs:
    """TFX's trainer arguments, as `trainer_module.run.run_fn` takes them."""
    rows = artifact_utils.get_single_instance(input_dict["rows"])
    graph = artifact_utils.get_single_instance(input_dict["transform_graph"])
    model = artifact_utils.get_single_instance(output_dict["model"])
    run = artifact_utils.get_single_instance(output_dict["model_run"])
    train_config = json.loads(exec_properties["train_config"])
    return FnArgs(
        train_files=[os.path.join(rows.uri, "Split-train")],
        eval_files=[os.path.join(rows.uri, "Split-eval")],
        train_steps=train_config["steps"],
        transform_graph_path=graph.uri,
        serving_model_dir=path_utils.serving_model_dir(model.uri),
        model_run_dir=run.uri,
        custom_config={
            "model": json.loads(exec_properties["model_config"]),
            "train": train_config,
            "tokenizer": str(tokenizer_path(graph.uri)),
            "checkpoint_root": exec_properties["checkpoint_root"],
            "code_hash": exec_properties["code_hash"],
        },
    )
