"""How a run looks: a live table on a terminal, plain lines elsewhere."""

import time
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from runners.cli.run_state import Component, RunState

_STYLES = {
    "waiting": "dim",
    "starting": "cyan",
    "running": "bold cyan",
    "done": "green",
    "cached": "blue",
    "failed": "bold red",
    "skipped": "dim",
}


def draw(state: RunState, now: float) -> RenderableType:
    """The table of components and, while training, a line of numbers.

    Args:
      now: seconds since the epoch, for what still runs.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, expand=False)
    table.add_column(no_wrap=True, min_width=max(map(len, state.components), default=0))
    table.add_column(no_wrap=True, min_width=8)
    table.add_column(no_wrap=True, justify="right", min_width=11)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for name, component in state.components.items():
        style = _STYLES[component.state]
        seconds = component.seconds
        if seconds is None and component.started is not None:
            seconds = now - component.started
        table.add_row(
            Text(name, style="dim" if component.state == "waiting" else ""),
            Text(component.state, style=style),
            Text(duration(seconds) if seconds is not None else "", style="dim"),
            Text(_told_of(component), style="red" if component.state == "failed" else "dim"),
        )
    if not state.components:
        return Text(state.note or "starting ...", style="dim")
    parts: list[RenderableType] = [table]
    if state.training and state.components.get("DistributedTrainer", Component()).state == "running":
        parts.append(Text(""))
        parts.append(Text.assemble(_bar(state.training), "  ", training_line(state.training)))
        if state.validation:
            parts.append(Text(validation_line(state.validation), style="dim"))
    return Group(*parts)


def plain_line(event: dict[str, Any]) -> str | None:
    """What an event says where there is no terminal; None if it says nothing there."""
    kind = event["kind"]
    name = event.get("component", "")
    if kind == "component_running":
        return f"{name}: running ({event['reason']})"
    if kind == "component_done":
        return f"{name}: done in {duration(event['seconds'])}"
    if kind == "component_cached":
        return f"{name}: cached"
    if kind == "component_skipped":
        return f"{name}: skipped"
    if kind == "component_failed":
        return f"{name}: failed after {duration(event['seconds'])}"
    if kind == "training_step":
        return f"  {training_line(event)}"
    if kind == "validation":
        return f"  {validation_line(event)}"
    if kind == "note":
        return f"{name}: {event['text']}" if name else str(event["text"])
    return None


def _told_of(component: Component) -> str:
    """One line: how it failed, else what it said last, else why it runs."""
    if component.state == "failed":
        return next(iter(component.reason.splitlines()), "")
    return component.note or component.reason


def training_line(event: dict[str, Any]) -> str:
    """Step, loss, and once a step after the one that compiles is done, speed and time left."""
    line = f"step {event['step']:,}/{event['total_steps']:,}  loss {event['loss']:.3f}"
    if event["tokens_per_s"] is None:
        return line
    return f"{line}  {event['tokens_per_s']:,.0f} tokens/s  {duration(event['eta_s'])} left"


def validation_line(event: dict[str, Any]) -> str:
    """Loss on rows that are not trained on."""
    return f"step {event['step']:,}  validation loss {event['loss']:.3f}"


def duration(seconds: float) -> str:
    """`3.2 s`, `45 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def print_summary(console: Console, state: RunState, max_sources: int = 8) -> None:
    """The verdict: metrics overall and by source, blessed or not and why, where the model is."""
    summary = state.summary or {}
    if "overall" in summary:
        console.print("Held-out documents:")
        console.print(_metrics_table(summary["overall"], summary["slices"], max_sources))
        verdict = Text("blessed", style="bold green") if summary["blessed"] else Text("not blessed", style="bold red")
        console.print(Text.assemble("The model is ", verdict, ": ", "; ".join(summary["reasons"]), "."), soft_wrap=True)
        if not summary["blessed"]:
            console.print(
                "The limits are evaluation.max_bits_per_byte and evaluation.max_bits_per_byte_increase, and those of "
                "sources; --rebaseline accepts a model that is worse than the served one."
            )
    if not summary.get("export_valid", True):
        console.print(Text(f"But {summary['export']}.", style="bold red"), soft_wrap=True)
    if "report" in summary:
        console.print(Text(f"Report: {summary['report']}"), soft_wrap=True)
    if "outcome" in summary:
        console.print(Text(_outcome(summary, state)), soft_wrap=True)
        if summary["outcome"] == "not_blessed" and "model" in summary:
            console.print(Text(f"Try it all the same: tokenmill generate --model {summary['model']}"), soft_wrap=True)


def _outcome(summary: dict[str, Any], state: RunState) -> str:
    """What became of the model."""
    pusher = state.components.get("RegistryPusher")
    place = f"version {summary['version']}: {summary['destination']}"
    if summary["outcome"] == "not_blessed":
        return "Nothing was pushed; the registry is as it was."
    if summary["outcome"] == "withdrawn":
        return (
            "Nothing was pushed: this model was served and rolled back. To serve it all the same, see: "
            "tokenmill registry list, promote"
        )
    if summary["outcome"] == "already_served" or (pusher is not None and pusher.state == "cached"):
        return f"Served already, as {place}"
    return f"Pushed as {place}"


def _metrics_table(overall: dict[str, Any], slices: list[dict[str, Any]], max_sources: int) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("source", no_wrap=True)
    for heading in ("documents", "bytes", "perplexity", "bits per byte", "accuracy"):
        table.add_column(heading, justify="right")
    largest = sorted(slices, key=lambda part: -part["num_bytes"])
    for name, part in [("all", overall), *((part["source"], part) for part in largest[:max_sources])]:
        accuracy = part.get("token_accuracy")
        table.add_row(
            Text(name, style="bold" if name == "all" else ""),
            f"{part['num_documents']:,}",
            f"{part['num_bytes']:,}",
            f"{part['perplexity']:,.1f}",
            f"{part['bits_per_byte']:.3f}",
            "" if accuracy is None else f"{accuracy:.1%}",
        )
    rest = largest[max_sources:]
    if rest:
        table.add_row(
            Text(f"({len(rest)} smaller)", style="dim"),
            f"{sum(part['num_documents'] for part in rest):,}",
            f"{sum(part['num_bytes'] for part in rest):,}",
        )
    return table


def _bar(training: dict[str, Any], width: int = 24) -> Text:
    filled = round(width * training["step"] / max(training["total_steps"], 1))
    return Text.assemble(("━" * filled, "green"), ("━" * (width - filled), "dim"))


def now() -> float:
    """Seconds since the epoch, as events have them."""
    return time.time()
