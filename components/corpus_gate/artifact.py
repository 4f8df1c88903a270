"""The artifact type of the gate's report."""

from tfx.types import artifact


class GateReport(artifact.Artifact):
    """`report.json` for machines, `report.html` for people.

    Custom properties: `passed` (1 or 0), `num_documents`, `warnings` (number of rules that warned).
    """

    TYPE_NAME = "components.corpus_gate.artifact.GateReport"
