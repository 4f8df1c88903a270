"""`tokenmill schema`: helps to keep the curated schema of documents."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from runners.cli.options import Config, Overrides
from runners.cli.quiet import quiet_stderr

if TYPE_CHECKING:
    from tensorflow_metadata.proto.v0 import schema_pb2

app = typer.Typer(
    no_args_is_help=True, help="Look at the schema of documents: as inferred, or as curated.", rich_markup_mode=None
)


@app.command()
def infer(config: Config, overrides: Overrides = None) -> None:
    """Print the schema that SchemaGen inferred from the documents of the last run, for review."""
    typer.echo(_inferred(config, overrides).read_text(encoding="utf-8"), nl=False)


@app.command()
def diff(config: Config, overrides: Overrides = None) -> None:
    """Say, feature by feature, how the documents of the last run differ from schema/corpus.pbtxt.

    Exit code 0 if they do not, 1 if they do.
    """
    with quiet_stderr():
        from pipeline.graph import SCHEMA_FILE

    lines = differences(_read(SCHEMA_FILE), _read(_inferred(config, overrides)))
    for line in lines:
        typer.echo(line)
    if lines:
        raise typer.Exit(1)
    typer.echo(f"{SCHEMA_FILE}: the documents are as it says")


def differences(curated: "schema_pb2.Schema", inferred: "schema_pb2.Schema") -> list[str]:
    """One line for each difference that matters to whoever keeps the schema.

    What only a person can know, domains, comparators and the like, is not compared: nothing infers it.
    """
    mine = {feature.name: feature for feature in curated.feature}
    found = {feature.name: feature for feature in inferred.feature}
    lines = [f"{name}: in the schema, but in no document" for name in sorted(mine.keys() - found.keys())]
    lines += [f"{name}: in documents, but not in the schema" for name in sorted(found.keys() - mine.keys())]
    for name in sorted(mine.keys() & found.keys()):
        lines += [f"{name}: {line}" for line in _feature_differences(mine[name], found[name])]
    return lines


def _feature_differences(curated: "schema_pb2.Feature", inferred: "schema_pb2.Feature") -> list[str]:
    from tensorflow_metadata.proto.v0 import schema_pb2

    lines = []
    if curated.type != inferred.type:
        names = [schema_pb2.FeatureType.Name(feature.type) for feature in (curated, inferred)]
        lines.append(f"{names[0]} in the schema, {names[1]} in documents")
    required, present = curated.presence.min_fraction, inferred.presence.min_fraction
    if required > present:
        lines.append(f"required in {required:.0%} of documents, not present in all")
    if curated.HasField("shape") and inferred.value_count.max > 1:
        lines.append(f"one value in the schema, up to {inferred.value_count.max} in documents")
    return lines


def _inferred(config: str, overrides: list[str] | None) -> Path:
    from pipeline.config import load_config

    loaded = load_config(config, overrides)
    with quiet_stderr():
        from runners.local.last_outputs import find_last_output

        folder = find_last_output(loaded, "SchemaGen", "schema")
    return folder / "schema.pbtxt"


def _read(path: Path) -> "schema_pb2.Schema":
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    return text_format.Parse(path.read_text(encoding="utf-8"), schema_pb2.Schema())
