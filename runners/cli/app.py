"""`tokenmill`: the commands, and how errors and interruptions end."""

import importlib.metadata
import signal
import sys
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from foundation.errors import TokenmillError
from runners.cli import (
    config_command,
    generate_command,
    ingest_command,
    registry_command,
    report_command,
    rows_command,
    run_command,
    schema_command,
    serve_command,
    verify_resume_command,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tokenmill {importlib.metadata.version('tokenmill')}")
        raise typer.Exit


app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="From raw text to a served language model.",
)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


app.command("ingest")(ingest_command.ingest)
app.command("run")(run_command.run)
app.command("generate")(generate_command.generate)
app.command("serve")(serve_command.serve)
app.command("rows")(rows_command.rows)
app.command("report")(report_command.report)
app.command("verify-resume")(verify_resume_command.verify_resume)
app.add_typer(config_command.app, name="config")
app.add_typer(registry_command.app, name="registry")
app.add_typer(schema_command.app, name="schema")


def main() -> None:
    """Entry of the `tokenmill` script. Errors of the project end as one message, without a traceback.

    Exit codes: 0; those of `foundation.errors`, among them 8 for a model that was refused; 128 and the signal's
    number after Ctrl-C, SIGTERM or SIGHUP.
    """
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        """Whatever is a context manager cleans up, whichever of the signals came."""
        received.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        app()
    except TokenmillError as error:
        for line in str(error).splitlines():
            errors.print("[bold red]error:[/] ", end="")
            errors.print(line, markup=False)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, SystemExit):  # Typer turns the former into the latter
        if not received:
            raise
        errors.print("interrupted; everything that was started has been ended")
        sys.exit(128 + received[0])


if __name__ == "__main__":
    main()
