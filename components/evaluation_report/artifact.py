"""The artifact type of the evaluation's report."""

from tfx.types import artifact

PAGE = "report.html"
DATA = "report.json"


class EvaluationReport(artifact.Artifact):
    """`report.html` for people, one file that needs neither scripts nor network; `report.json`, what is on it.

    Custom properties: `blessed` (1 or 0).
    """

    TYPE_NAME = "components.evaluation_report.artifact.EvaluationReport"
