"""Executor of ExportValidator: cases, a fresh process, a report, a blessing."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils
from tfx.utils import path_utils

from components.export_validator import report
from components.export_validator.cases import Settings, make_cases
from components.sequence_packer.artifact import split_folder
from foundation import atomic, events
from foundation.errors import ModelError
from trainer_module.reference import REFERENCE_NAME

BLESSED_FILE, NOT_BLESSED_FILE = "INFRA_BLESSED", "INFRA_NOT_BLESSED"
"""Files of TFX's InfraBlessing; its property `blessed` is what the pusher reads."""

_COMPONENT = "ExportValidator"
_SPLIT = "eval"
_CHECKS = Path(__file__).with_name("checks.py")
_ROOT = Path(__file__).resolve().parents[2]


class Executor(base_executor.BaseExecutor):
    """Validates, reports, blesses."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """See `ExportValidator` for inputs, outputs and parameters. A check that fails withholds the blessing.

        Raises:
          CorpusError: there is nothing to compare with.
          ModelError: the process ended without a report.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        limit = exec_properties.get("max_load_mib")
        cases = make_cases(
            Path(path_utils.serving_model_path(artifact_utils.get_single_uri(input_dict["model"]))),
            Path(artifact_utils.get_single_uri(input_dict["model_run"])) / REFERENCE_NAME,
            Path(artifact_utils.get_split_uri(input_dict["examples"], _SPLIT)),
            Path(split_folder(artifact_utils.get_single_uri(input_dict["rows"]), _SPLIT)),
            project_packages(),
            Settings(
                num_documents=int(exec_properties["num_documents"]),
                tolerance=float(exec_properties["tolerance"]),
                max_answer_s=float(exec_properties["max_answer_s"]),
                max_load_mib=None if limit is None else float(limit),
            ),
        )
        found = validate(cases, float(exec_properties["timeout_s"]))

        blessing = artifact_utils.get_single_instance(output_dict["blessing"])
        pages = {
            report.REPORT_NAME: json.dumps(found, indent=2, ensure_ascii=False) + "\n",
            "report.html": report.as_html(exec_properties["title"], found),
        }
        latest = Path(exec_properties["report_dir"])
        for folder in (Path(blessing.uri), latest):
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in pages.items():
                atomic.write_text(folder / name, text)
        atomic.write_text(Path(blessing.uri) / (BLESSED_FILE if found["passed"] else NOT_BLESSED_FILE), "")
        blessing.set_int_custom_property("blessed", int(found["passed"]))
        events.emit("note", component=_COMPONENT, text=f"{report.in_words(found)}: {latest / 'report.html'}")


def validate(cases: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Runs `checks.py` on `cases`; its report.

    Raises:
      ModelError: it was not done in time, or ended without a report.
    """
    # Folders of packages, without the .pth files in them, by which an editable install would bring this project.
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    with tempfile.TemporaryDirectory(prefix="export-validator-") as folder:
        asked, answered = Path(folder) / "cases.json", Path(folder) / "report.json"
        asked.write_text(json.dumps(cases), encoding="utf-8")
        command = [sys.executable, "-I", "-S", str(_CHECKS), str(asked), str(answered), *packages]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        try:
            result = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                cwd=folder,
                env=environment,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            raise ModelError(
                f"{cases['model']}: the checks of the export were not done after {timeout_s:g} s; raise "
                "export.timeout_s, or lower export.num_documents"
            ) from None
        if result.returncode or not answered.is_file():
            raise ModelError(
                f"{cases['model']}: the process that checks the export ended with {result.returncode} and without a "
                f"report; is there enough memory? It said: {result.stderr[-1000:].strip()}"
            )
        found: dict[str, Any] = json.loads(answered.read_text(encoding="utf-8"))
    return found


def project_packages() -> list[str]:
    """Names of this project's packages."""
    return sorted(path.parent.name for path in _ROOT.glob("*/__init__.py"))
