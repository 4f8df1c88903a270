"""`tokenmill`: the commands, and how errors and interruptions end."""

import os
import signal
import sys
from types import FrameType

import typer
from rich.console import Console

from foundation.errors import TokenmillError
from runners.cli import config_command, generate_command, ingest_command, run_command

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="From raw text to a served language model.",
)
app.command("ingest")(ingest_command.ingest)
app.command("run")(run_command.run)
app.command("generate")(generate_command.generate)
app.add_typer(config_command.app, name="config")


def main() -> None:
    """Entry of the `tokenmill` script. Errors of the project end as one message, without a traceback."""
    signal.signal(signal.SIGTERM, _terminate)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        app(standalone_mode=True)
    except TokenmillError as error:
        for line in str(error).splitlines():
            errors.print("[bold red]error:[/] ", end="")
            errors.print(line, markup=False)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        errors.print("interrupted; everything that was started has been ended")
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has gone, e.g. `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _terminate(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends like Ctrl-C: whatever is a context manager cleans up."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
