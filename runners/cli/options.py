"""Options that several commands share."""

from typing import Annotated

import typer

Config = Annotated[
    str, typer.Option("--config", "-c", metavar="FILE", help="Configuration of the run, e.g. configs/demo.yaml.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override a setting, e.g. train.steps=50. Repeatable."),
]
