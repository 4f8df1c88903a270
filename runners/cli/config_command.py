"""`tokenmill config`: what a configuration says, and whether it is right."""

import typer
import yaml

from runners.cli.options import Config, Overrides

app = typer.Typer(no_args_is_help=True, help="Show or check a configuration.", rich_markup_mode=None)


@app.command()
def show(config: Config, overrides: Overrides = None) -> None:
    """Print every setting with its resolved value, as YAML."""
    from pipeline.config import load_config

    values = load_config(config, overrides).model_dump()
    typer.echo(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), nl=False)


@app.command()
def check(config: Config, overrides: Overrides = None) -> None:
    """Say whether the configuration is valid; name every fault if not."""
    from pipeline.config import load_config

    loaded = load_config(config, overrides)
    if not loaded.documents_folder.is_dir():
        typer.echo(
            f"note: {loaded.documents_folder}: no such folder yet (corpus.documents); tokenmill ingest makes it",
            err=True,
        )
    typer.echo(f"{config}: ok (run {loaded.name})")
