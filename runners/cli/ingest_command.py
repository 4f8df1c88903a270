"""`tokenmill ingest`: raw files into documents."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from foundation.errors import ConfigError

if TYPE_CHECKING:
    from ingest.options import IngestOptions
    from ingest.report import IngestReport
    from ingest.report import Progress as IngestProgress

_MAX_SHOWN = 5
"""Examples of a kind that are printed; the span's ingest.json has more."""


class LineEndings(str, Enum):
    """What becomes of CRLF."""

    keep = "keep"
    lf = "lf"


class OnBad(str, Enum):
    """What to do about input that cannot be a document."""

    fail = "fail"
    skip = "skip"
    quarantine = "quarantine"


def ingest(
    out: Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="Corpus folder; gets a span-N folder.")],
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="INPUT...", help="Files, folders or globs (such as 'a/**/*.md').")
    ] = None,
    stdlib: Annotated[
        bool, typer.Option("--stdlib", help="Take the running Python's own standard library, without its tests.")
    ] = False,
    span: Annotated[
        int | None,
        typer.Option(min=1, help="Number of the span; if not given, the newest if it holds just this, else the next."),
    ] = None,
    source: Annotated[str | None, typer.Option(help="Source of all documents, instead of their folder.")] = None,
    text_field: Annotated[str, typer.Option(help="Field of the text in JSON, Parquet and TFRecord.")] = "text",
    id_field: Annotated[str | None, typer.Option(help="Field of the document's id.")] = None,
    source_field: Annotated[str | None, typer.Option(help="Field of the document's source.")] = None,
    max_document_bytes: Annotated[
        int, typer.Option(min=1000, help="Longer texts are cut at paragraphs, to ids that end in #0001, #0002, ...")
    ] = 1_000_000,
    on_bad: Annotated[
        OnBad, typer.Option(help="Input that is no valid document: fail, skip or quarantine it.")
    ] = OnBad.fail,
    keep_duplicates: Annotated[bool, typer.Option("--keep-duplicates", help="Keep exact copies.")] = False,
    near_duplicates: Annotated[
        bool, typer.Option("--near-duplicates", help="Report (not remove) texts that are nearly the same, by MinHash.")
    ] = False,
    near_duplicate_similarity: Annotated[
        float,
        typer.Option(min=0.01, max=1.0, help="Share of common word 5-grams from which texts are nearly the same."),
    ] = 0.8,
    line_endings: Annotated[
        LineEndings, typer.Option(help="keep: bytes stay as they are; lf: CRLF becomes LF, a lone CR stays.")
    ] = LineEndings.keep,
    extensions: Annotated[
        list[str] | None,
        typer.Option(
            "--extension",
            metavar="ENDING",
            help="Ending of files to read as source code, such as .f90, instead of the known ones; can be repeated.",
        ),
    ] = None,
    shard_bytes: Annotated[
        int, typer.Option(min=1000, help="Size of a shard in bytes, about; one shard is sorted in memory.")
    ] = 64 << 20,
    num_workers: Annotated[
        int, typer.Option(min=1, help="Processes; more pay off from some hundred MB in several files.")
    ] = 1,
) -> None:
    """Turn files into a corpus of documents that a run can read."""
    if not stdlib and not inputs:
        raise ConfigError("nothing to ingest; give files or folders, or --stdlib")
    from ingest.options import SOURCE_CODE_EXTENSIONS, IngestOptions

    options = IngestOptions(
        inputs=tuple(inputs or ()),
        out=out,
        span=span,
        stdlib=stdlib,
        source=source,
        text_field=text_field,
        id_field=id_field,
        source_field=source_field,
        max_document_bytes=max_document_bytes,
        on_bad=on_bad.value,
        dedup=not keep_duplicates,
        near_duplicates=near_duplicates,
        near_duplicate_similarity=near_duplicate_similarity,
        line_endings=line_endings.value,
        extensions=tuple(extensions) if extensions else SOURCE_CODE_EXTENSIONS,
        shard_bytes=shard_bytes,
        num_workers=num_workers,
    )
    console = Console(highlight=False)
    report = _run_with_bar(console, options)
    _print_report(console, report, options)


def _run_with_bar(console: Console, options: "IngestOptions") -> "IngestReport":
    from ingest.run import run_ingest

    if not console.is_terminal:
        return run_ingest(options)
    size = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), BarColumn(), *size, console=console, transient=True) as bar:
        task = bar.add_task("ingest", total=None)

        def show(progress: "IngestProgress") -> None:
            doing = "ingest: read" if progress.phase == "read" else "ingest: write shards"
            bar.update(task, description=doing, completed=progress.done_bytes, total=progress.total_bytes)

        return run_ingest(options, show)


def _print_report(console: Console, report: "IngestReport", options: "IngestOptions") -> None:
    """The size first, then, whether or not it was made just now, all that was left out or is to be looked at."""
    documents = "1 document" if report.num_documents == 1 else f"{report.num_documents:,} documents"
    size = f"{documents}, {_megabytes(report.num_bytes)}"
    speed = report.num_bytes / 1e6 / max(report.seconds, 1e-9)
    lines = [
        f"{report.span_folder}: up to date ({size})"
        if report.unchanged
        else f"{report.span_folder}: {size} in {report.seconds:.1f} s ({speed:,.1f} MB/s)"
    ]
    if report.num_near_duplicates is not None:
        lines.append(f"  {report.num_near_duplicates:,} nearly the same as an earlier one (kept)")
        lines += [f"    {example}" for example in report.near_duplicate_examples[:_MAX_SHOWN]]
    if report.num_duplicates:
        lines.append(f"  {report.num_duplicates:,} exact duplicates left out")
    if report.num_empty_code_files:
        lines.append(f"  {report.num_empty_code_files:,} empty source files")
    if report.num_ignored_files:
        endings = ", ".join(
            f"{count:,} {ending or 'without ending'}" for ending, count in report.num_ignored_files.items()
        )
        lines.append(f"  {sum(report.num_ignored_files.values()):,} files not read: {endings}")
    lines += [f"  {count:,} not taken: {reason}" for reason, count in sorted(report.bad.items())]
    lines += [f"    {example}" for example in report.bad_examples[:_MAX_SHOWN]]
    if report.num_bad > _MAX_SHOWN:
        lines.append(f"    and {report.num_bad - _MAX_SHOWN:,} more")
    if report.bad and options.on_bad == "quarantine":
        lines.append(f"  kept for review: {report.span_folder}/quarantine")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _megabytes(num_bytes: int) -> str:
    """`12.1 MB`; of less than a tenth of one, kilobytes."""
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes >= 1e5 else f"{num_bytes / 1e3:,.1f} kB"
