"""Executor of EvaluationReport: from artifacts to a page."""

from pathlib import Path
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import path_utils

from components.evaluation_report.artifact import DATA, PAGE
from foundation import atomic, events


class Executor(base_executor.BaseExecutor):
    """Writes the page."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """Writes `report.html` and `report.json`.

        Raises:
          ModelError: there is no evaluation to report.
        """
        # Imported here: whoever only makes the graph has no use for TensorFlow's and TFMA's start-up.
        from components.evaluation_report.page import Report, as_html, as_json
        from components.evaluation_report.samples import sample
        from components.evaluator.results import load_results, load_verdict
        from trainer_module.train_log import LOG_NAME, read_train_log

        folder = {key: Path(artifacts[0].uri) for key, artifacts in input_dict.items() if artifacts}
        log = folder["model_run"] / LOG_NAME
        verdict = load_verdict(str(folder["evaluation"]), str(folder["blessing"]))
        report = Report(
            title=exec_properties["title"],
            verdict=verdict,
            results=load_results(str(folder["evaluation"])),
            log=read_train_log(log) if log.exists() else [],
            samples=sample(Path(path_utils.serving_model_dir(str(folder["model"]))), folder["examples"] / "Split-eval"),
        )
        made = artifact_utils.get_single_instance(output_dict["report"])
        target = Path(made.uri)
        target.mkdir(parents=True, exist_ok=True)
        atomic.write_text(target / DATA, as_json(report))
        atomic.write_text(target / PAGE, as_html(report))
        made.set_int_custom_property("blessed", int(verdict.blessed))
        events.emit("note", component="EvaluationReport", text=f"see {target / PAGE}")
