"""`tokenmill run`: the whole line, with a live table."""

from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape

from foundation.errors import PipelineError
from runners.cli.options import Config, Overrides
from runners.cli.run_state import RunState
from runners.cli.run_view import draw, duration, now, plain_line, print_summary


def run(
    config: Config,
    overrides: Overrides = None,
    from_nodes: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="COMPONENT", help="Start here; use earlier outputs. Repeatable."),
    ] = None,
    to_nodes: Annotated[
        list[str] | None, typer.Option("--to", metavar="COMPONENT", help="Stop after this. Repeatable.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Run every component, changed or not.")] = False,
) -> None:
    """Run the pipeline on this machine: from documents to a pushed model."""
    from pipeline.config import load_config
    from runners.local.supervisor import Supervisor

    loaded = load_config(config, overrides)
    loaded.root.mkdir(parents=True, exist_ok=True)
    arguments = ["--config", config]
    for option, values in (("--set", overrides), ("--from", from_nodes), ("--to", to_nodes)):
        for value in values or []:
            arguments += [option, value]
    if no_cache:
        arguments.append("--no-cache")

    console = Console(highlight=False)
    state = RunState()
    begun = now()
    with Supervisor(loaded.root, arguments) as child:
        console.print(f"[bold]{escape(loaded.name)}[/]  log: {escape(str(child.log_path))}", soft_wrap=True)
        _follow(console, state, child)
    _conclude(console, state, child, now() - begun)


def _follow(console: Console, state: RunState, child) -> None:  # type: ignore[no-untyped-def] # imported lazily
    if not console.is_terminal:
        for event in child.events():
            if event is not None:
                state.apply(event)
                line = plain_line(event)
                if line is not None:
                    console.print(line, markup=False, soft_wrap=True)
        return
    with Live(console=console, refresh_per_second=5, get_renderable=lambda: draw(state, now())):
        for event in child.events():
            if event is not None:
                state.apply(event)


def _conclude(console: Console, state: RunState, child, seconds: float) -> None:  # type: ignore[no-untyped-def]
    if state.ok:
        console.print()
        print_summary(console, state)
        console.print(f"Finished in {duration(seconds)}.")
        return
    if state.ok is None and child.exit_code and child.exit_code < 0:
        cause = f"the process was killed by signal {-child.exit_code}" + (
            "; is there enough memory?" if child.exit_code == -9 else ""
        )
    else:
        cause = state.error or f"the process ended with exit code {child.exit_code}"
    running = next((n for n, c in state.components.items() if c.state in ("running", "starting")), None)
    where = state.failed or running
    error = PipelineError(f"{f'{where}: ' if where else ''}{cause}\nlog: {child.log_path}")
    error.exit_code = child.exit_code if child.exit_code and child.exit_code > 0 else PipelineError.exit_code
    raise error
