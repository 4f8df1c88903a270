"""`tokenmill registry`: what is served, where it comes from, and the way back."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from components.registry_pusher import registry, rollback
from components.registry_pusher.registry import Push
from foundation.errors import ConfigError, ModelError
from runners.cli.options import Config, Overrides
from runners.cli.quiet import quiet_stderr

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Versions of a model: look, check, go back.")

ConfigFile = Annotated[
    str | None, typer.Option("--config", "-c", metavar="FILE", help="Take the registry and model of this run.")
]
Folder = Annotated[
    str | None, typer.Option("--folder", metavar="FOLDER", help="Take this folder of versions: REGISTRY/NAME.")
]
Version = Annotated[int | None, typer.Argument(min=1, help="A version. Default: the one that is served.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the manifest.")]


@app.command("list")
def list_(config: ConfigFile = None, folder: Folder = None, overrides: Overrides = None) -> None:
    """Every version, the newest first, with its metrics and what became of it."""
    place, name = _place(config, folder, overrides)
    served = registry.newest_version(place, name)
    if served is None:
        raise ModelError(f"{place / name}: holds no version; run: tokenmill run --config FILE")
    taken_back = registry.withdrawn(place, name)
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("version", justify="right")
    for heading in ("created", "bits per byte", "span", "remarks"):
        table.add_column(heading, no_wrap=True)
    for version in reversed(registry.list_versions(place, name)):
        remarks = [Text("served", style="green")] if version == served else []
        try:
            manifest = registry.read_manifest(place, name, version)
        except ModelError:
            table.add_row(str(version), "", "", "", Text("no manifest: not made by a push", style="red"))
            continue
        restored = manifest.get("restored")
        if restored:
            remarks.append(Text(f"version {restored['version']} again ({restored['action']})"))
        if registry.digest_of(manifest["files"]) in taken_back:
            remarks.append(Text("rolled back", style="red"))
        evaluation = manifest.get("evaluation") or {}
        if evaluation.get("rebaselined"):
            remarks.append(Text("accepted with --rebaseline"))
        measured = (evaluation.get("overall") or {}).get("bits_per_byte")
        table.add_row(
            str(version),
            str(manifest.get("created", "")),
            "" if measured is None else f"{measured:.4f}",
            str((manifest.get("data") or {}).get("span", "")),
            Text(", ").join(remarks),
        )
    console = Console(highlight=False)
    console.width = max(console.width, 120)  # wrapped by the terminal, rather than cut
    console.print(table)


@app.command()
def show(
    version: Version = None, config: ConfigFile = None, folder: Folder = None, overrides: Overrides = None
) -> None:
    """The manifest of a version, as JSON."""
    place, name = _place(config, folder, overrides)
    manifest = registry.read_manifest(place, name, _or_served(place, name, version))
    typer.echo(json.dumps(manifest, indent=2, ensure_ascii=False))


@app.command()
def verify(
    version: Version = None,
    config: ConfigFile = None,
    folder: Folder = None,
    overrides: Overrides = None,
    every: Annotated[bool, typer.Option("--all", help="Every version.")] = False,
) -> None:
    """Compare a version's files with the checksums in its manifest; exit code 6 if any differs."""
    place, name = _place(config, folder, overrides)
    faults = []
    for number in registry.list_versions(place, name) if every else [_or_served(place, name, version)]:
        try:
            found = registry.verify(place, name, number)
        except ModelError as error:
            found = [str(error)]
        faults += [f"version {number}: {fault}" for fault in found]
        if not found:
            typer.echo(f"version {number}: sound")
    if faults:
        raise ModelError("\n".join(faults))


@app.command("rollback")
def rollback_(
    version: Version = None,
    config: ConfigFile = None,
    folder: Folder = None,
    overrides: Overrides = None,
    reason: Reason = "",
) -> None:
    """Serve the version before the served one again, or the one given; nothing is deleted.

    Its files become the newest version, which servers take of themselves. What is taken back is not pushed again by
    a pipeline.
    """
    place, name = _place(config, folder, overrides)
    _tell(place, name, rollback.rollback(place, name, version, reason))
    _follow(config, overrides)


@app.command("promote")
def promote_(
    version: Annotated[int, typer.Argument(min=1, help="The version to serve.")],
    config: ConfigFile = None,
    folder: Folder = None,
    overrides: Overrides = None,
    reason: Reason = "",
) -> None:
    """Serve any version again, one that was rolled back, too: its files become the newest version."""
    place, name = _place(config, folder, overrides)
    _tell(place, name, rollback.promote(place, name, version, reason))
    _follow(config, overrides)


@app.command("mirror")
def mirror_(config: Config, overrides: Overrides = None) -> None:
    """Bring the copy in an object store up to date (registry.mirror); pushes and rollbacks do it of themselves."""
    if not _follow(config, overrides):
        raise ConfigError(f"{config}: registry.mirror is not set; set it to a place such as gs://BUCKET/models")


def _follow(config: str | None, overrides: list[str] | None) -> bool:
    """Brings the mirror up to date; gives whether there is one."""
    if config is None:
        return False
    from pipeline.config import load_config

    loaded = load_config(config, overrides)
    if not loaded.registry.mirror:
        return False
    with quiet_stderr():
        from components.registry_pusher.mirror import mirror
    added = mirror(loaded.registry_folder, loaded.name, loaded.registry.mirror)
    typer.echo(f"{loaded.registry.mirror}/{loaded.name}: added {', '.join(map(str, added)) or 'nothing'}")
    return True


def _tell(place: Path, name: str, done: Push) -> None:
    if not done.is_new:
        typer.echo(f"version {done.version} is served and holds that model already; nothing was done")
        return
    restored: dict[str, Any] = registry.read_manifest(place, name, done.version)["restored"]
    typer.echo(
        f"version {done.version} is served now: version {restored['version']} again, instead of "
        f"{restored['instead_of']}: {done.folder}"
    )


def _place(config: str | None, folder: str | None, overrides: list[str] | None) -> tuple[Path, str]:
    """Root of the registry, and the model's name."""
    if (config is None) == (folder is None):
        raise ConfigError("give either --config FILE or --folder REGISTRY/NAME")
    if folder is not None:
        path = Path(folder).absolute()
        return path.parent, path.name
    from pipeline.config import load_config

    loaded = load_config(str(config), overrides)
    return loaded.registry_folder, loaded.name


def _or_served(place: Path, name: str, version: int | None) -> int:
    served = registry.newest_version(place, name) if version is None else version
    if served is None:
        raise ModelError(f"{place / name}: holds no version; run: tokenmill run --config FILE")
    return served
