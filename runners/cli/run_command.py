"""`tokenmill run`: the whole line, with a live table."""

import itertools
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape

from foundation.documents import DOCUMENT_FILE_PREFIX
from foundation.errors import NOT_BLESSED_EXIT_CODE, CorpusError, HostError, PipelineError
from runners.cli.options import Config, Overrides
from runners.cli.run_state import RunState
from runners.cli.run_view import draw, duration, now, plain_line, print_summary

COMPONENT_NAMES = (
    "CorpusGen",
    "StatisticsGen",
    "SchemaGen",
    "ImportSchemaGen",
    "ExampleValidator",
    "CorpusGate",
    "Transform",
    "SequencePacker",
    "BaselineModel",
    "DistributedTrainer",
    "ExportValidator",
    "Evaluator",
    "RegistryPusher",
    "EvaluationReport",
)
"""Of `pipeline.graph`, in order; here, too, so that a mistake is found before TensorFlow Extended starts."""

FIRST = COMPONENT_NAMES[0]
_NAMED = f"One of {', '.join(COMPONENT_NAMES)}."

if TYPE_CHECKING:
    from pipeline.config import RunConfig
    from runners.local.supervisor import Supervisor


def run(
    config: Config,
    overrides: Overrides = None,
    from_nodes: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="COMPONENT", help=f"Start here; use earlier outputs. Repeatable. {_NAMED}"),
    ] = None,
    to_nodes: Annotated[
        list[str] | None, typer.Option("--to", metavar="COMPONENT", help="Stop after this. Repeatable.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Run every component, changed or not.")] = False,
    rebaseline: Annotated[
        bool,
        typer.Option("--rebaseline", help="Accept the model though it is worse than the served one; this is recorded."),
    ] = False,
) -> None:
    """Run the pipeline on this machine: from documents to a pushed model.

    Exit code 8: it finished, but the model was refused, and nothing was pushed.
    """
    from pipeline.config import load_config
    from runners.local.supervisor import Supervisor

    loaded = load_config(config, overrides)
    _check_names(from_nodes, to_nodes)
    if not from_nodes or FIRST in from_nodes:
        _check_documents(loaded)
    try:
        loaded.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(f"{loaded.root}: cannot be made ({error.strerror}); set run_root to another folder") from None
    arguments = ["--config", config]
    for option, values in (("--set", overrides), ("--from", from_nodes), ("--to", to_nodes)):
        for value in values or []:
            arguments += [option, value]
    if no_cache:
        arguments.append("--no-cache")
    if rebaseline:
        arguments.append("--rebaseline")

    console = Console(highlight=False)
    state = RunState()
    begun = now()
    with Supervisor(loaded.root, arguments) as child:
        console.print(f"[bold]{escape(loaded.name)}[/]  log: {escape(str(child.log_path))}", soft_wrap=True)
        try:
            _follow(console, state, child)
        except KeyboardInterrupt:
            _say_how_to_go_on(console, state, child)
            raise
    _conclude(console, state, child, now() - begun)


def _check_names(*names: list[str] | None) -> None:
    """Refuses a component that does not exist before anything starts."""
    for name in itertools.chain.from_iterable(given or [] for given in names):
        if name not in COMPONENT_NAMES:
            raise PipelineError(f"no component named {name!r}; known: {', '.join(COMPONENT_NAMES)}")


def _say_how_to_go_on(console: Console, state: RunState, child: "Supervisor") -> None:
    where = next((name for name, component in state.components.items() if component.state == "running"), None)
    step = f", training at step {state.training['step']:,}" if state.training and where == "DistributedTrainer" else ""
    console.print(
        f"\nStopped{f' in {where}' if where else ''}{step}. The same command goes on: finished components are not "
        f"repeated, and training continues from its last checkpoint.\nlog: {escape(str(child.log_path))}",
        soft_wrap=True,
    )


def _check_documents(config: "RunConfig") -> None:
    """Says what is missing before anything starts, in the user's terms: CorpusGen would speak of a pattern."""
    span = "*" if config.corpus.span is None else str(config.corpus.span)
    if not any(config.documents_folder.glob(f"span-{span}/{DOCUMENT_FILE_PREFIX}-*")):
        raise CorpusError(
            f"{config.documents_folder}: holds no documents{'' if span == '*' else f' of span {span}'} "
            f"(corpus.documents); make some: tokenmill ingest FILES... --out {config.corpus.documents}"
        )


def _follow(console: Console, state: RunState, child: "Supervisor") -> None:
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


def _conclude(console: Console, state: RunState, child: "Supervisor", seconds: float) -> None:
    if state.ok:
        console.print()
        print_summary(console, state)
        console.print(f"Finished in {duration(seconds)}.")
        if (state.summary or {}).get("outcome") == "not_blessed":
            raise typer.Exit(NOT_BLESSED_EXIT_CODE)
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
