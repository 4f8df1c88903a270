"""`tokenmill report`: the page of the last evaluation."""

import webbrowser
from typing import Annotated

import typer

from runners.cli.options import Config, Overrides
from runners.cli.quiet import quiet_stderr


def report(
    config: Config,
    overrides: Overrides = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Show it in a browser, if there is one.")] = True,
) -> None:
    """Open the report of the last evaluation: verdict, loss curve, metrics beside the baseline's, samples."""
    with quiet_stderr():
        from components.evaluation_report.artifact import PAGE
        from pipeline.config import load_config
        from runners.local.last_outputs import find_last_output
    page = find_last_output(load_config(config, overrides), "EvaluationReport", "report") / PAGE
    typer.echo(str(page))
    if show:
        try:
            webbrowser.open(page.as_uri())
        except webbrowser.Error as error:
            typer.echo(f"no browser could be started ({error}); open the file by hand", err=True)
