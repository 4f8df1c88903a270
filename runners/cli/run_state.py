"""What is known of a run: a fold over its events. No drawing here, so that it can be tested."""

import dataclasses
from typing import Any


@dataclasses.dataclass
class Component:
    """One component's line."""

    state: str = "waiting"
    """waiting, starting, running, done, cached, failed or skipped."""

    reason: str = ""
    """Why it ran, or how it failed."""

    note: str = ""
    """The last thing that it has said."""

    started: float | None = None
    """Time of the event, seconds since the epoch."""

    seconds: float | None = None
    """How long it took, once it has ended."""


@dataclasses.dataclass
class RunState:
    """Everything that has been said so far."""

    components: dict[str, Component] = dataclasses.field(default_factory=dict)
    """By id, in the order of the run."""

    started: float | None = None
    note: str = ""
    """What happens before the first component."""

    training: dict[str, Any] | None = None
    """The last `training_step`."""

    validation: dict[str, Any] | None = None
    """The last `validation`."""

    summary: dict[str, Any] | None = None
    ok: bool | None = None
    """None while the run goes on."""

    error: str = ""

    @property
    def failed(self) -> str | None:
        """The component that failed, if one did."""
        return next((name for name, component in self.components.items() if component.state == "failed"), None)

    def apply(self, event: dict[str, Any]) -> None:
        """Takes one event; of unknown kinds it takes nothing."""
        kind = event["kind"]
        if kind == "run_started":
            self.started = event["time"]
            self.components = {name: Component() for name in event["components"]}
        elif kind.startswith("component_"):
            self._apply_to_component(kind.removeprefix("component_"), event)
        elif kind == "training_step":
            self.training = event
        elif kind == "validation":
            self.validation = event
        elif kind == "note" and "component" in event:
            self.components.setdefault(event["component"], Component()).note = event["text"]
        elif kind == "note" and (running := self._running()) is not None:
            running.note = event["text"]
        elif kind == "note":
            self.note = event["text"]
        elif kind == "summary":
            self.summary = event
        elif kind == "run_finished":
            self.ok = event["ok"]
            self.error = event.get("error", "")

    def _running(self) -> Component | None:
        """The component at work: what says something without saying who is a part of it."""
        return next((one for one in self.components.values() if one.state == "running"), None)

    def _apply_to_component(self, happened: str, event: dict[str, Any]) -> None:
        component = self.components.setdefault(event["component"], Component())
        component.seconds = event.get("seconds", component.seconds)
        if happened == "started":
            component.state, component.started = "starting", event["time"]
        elif happened == "failed":
            component.state, component.reason = "failed", event["error"]
        else:  # running, done, cached, skipped
            component.state = happened
            component.reason = event.get("reason", component.reason)
