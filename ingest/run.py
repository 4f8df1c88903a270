"""One ingest, from files to a published span.

Two stages of Beam tasks with a plan between them: read every file into runs, find duplicates
and lay out the shards, write the shards. Everything happens in a staging folder.
"""

import dataclasses
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from foundation import atomic
from foundation.errors import CorpusError, HostError
from ingest.bad import QUARANTINE_FOLDER, BadCount, write_quarantine
from ingest.dedup import Duplicates, find_duplicates, keep_all
from ingest.inputs import Discovery, discover
from ingest.manifest import load_if_same, write_manifest
from ingest.near_duplicates import NearDuplicates, find_near_duplicates
from ingest.options import IngestOptions
from ingest.progress import ProgressFollower
from ingest.reading import PROGRESS_NAME, RUNS_FOLDER, ReadOutcome, plan_reading, quarantine_file
from ingest.report import IngestReport, Progress
from ingest.runs import Run, save_runs
from ingest.shards import Shard, ShardTask, check_unique, plan_shards, shard_name
from ingest.span import corpus_lock, publish, span_taken_error, spans, staging_folder

_OUTCOMES_FOLDER = "outcomes"


def run_ingest(options: IngestOptions, on_progress: Callable[[Progress], None] | None = None) -> IngestReport:
    """Turns files into a span of documents, or finds that it is there already.

    Args:
      on_progress: called from another thread a few times a second.

    Raises:
      ConfigError: the options; the span exists with other documents.
      CorpusError: bad input and on_bad=fail; two documents with one id; no documents at all.
      HostError: the disk.
    """
    started_ns = time.time_ns()
    started = time.monotonic()
    found = discover(options)
    # Before all else: that the other inputs are in a span already does not make these good.
    if options.on_bad == "fail" and found.bad:
        raise _count_bad(found, []).error()
    try:
        known = _known_span(options, found) or _make_span(options, found, on_progress, started_ns)
    except OSError as error:
        raise HostError(
            f"cannot write to {options.out} ({error}); make it writable, free or enlarge the disk, then run again"
        ) from error
    return dataclasses.replace(known, seconds=time.monotonic() - started)


def _make_span(
    options: IngestOptions, found: Discovery, on_progress: Callable[[Progress], None] | None, started_ns: int
) -> IngestReport:
    if not found.files:
        raise _nothing_error(found, _count_bad(found, []))
    out = Path(options.out)
    with staging_folder(out) as staging:
        with ProgressFollower(staging / PROGRESS_NAME, found.total_bytes, on_progress) as follower:
            reads = _read(found, options, staging)
            bad = _count_bad(found, reads)
            if options.on_bad == "fail" and bad.total:
                raise bad.error()
            runs = [run for read in reads for run in read.runs]
            if not runs:
                raise _nothing_error(found, bad)
            follower.writing()
            duplicates = find_duplicates(runs) if options.dedup else keep_all(runs)
            shards, near = _write(runs, duplicates, options, staging)
        check_unique(shards)
        if options.on_bad == "quarantine" and bad.total:
            _collect_quarantine(found, len(reads), staging)
        seconds = (time.time_ns() - started_ns) / 1e9
        report = _report(found, reads, bad, duplicates, near, shards, seconds)
        for folder in (RUNS_FOLDER, _OUTCOMES_FOLDER):
            shutil.rmtree(staging / folder)
        (staging / PROGRESS_NAME).unlink()
        sha256 = [digest for read in reads for digest in read.sha256]
        write_manifest(staging, options, found, sha256, shards, report, started_ns)
        atomic.sync_tree(staging)
        with corpus_lock(out):
            # Another ingest may have made the same span meanwhile.
            known = _known_span(options, found)
            if known is not None:
                return known
            return dataclasses.replace(report, span_folder=str(publish(staging, out, options.span)))


def _read(found: Discovery, options: IngestOptions, staging: Path) -> list[ReadOutcome]:
    # Beam takes seconds to import; an ingest that has nothing to do need not wait for it.
    from ingest.beam_tasks import run_tasks

    for folder in (RUNS_FOLDER, _OUTCOMES_FOLDER):
        (staging / folder).mkdir()
    return run_tasks("Read", plan_reading(found.files, options, staging), staging / _OUTCOMES_FOLDER, options)


def _write(
    runs: list[Run], duplicates: Duplicates, options: IngestOptions, staging: Path
) -> tuple[list[Shard], NearDuplicates | None]:
    from ingest.beam_tasks import run_tasks

    runs_folder = staging / RUNS_FOLDER
    save_runs(runs_folder, runs)
    duplicates.save(runs_folder)
    ranges = plan_shards(runs, duplicates, options.shard_bytes)
    signatures = [runs_folder / f"signatures-{number:05d}.npy" for number in range(len(ranges))]
    tasks = [
        ShardTask(
            path=str(staging / shard_name(number, len(ranges))),
            runs_folder=str(runs_folder),
            low=low,
            high=high,
            signatures_path=str(signatures[number]) if options.near_duplicates else None,
        )
        for number, (low, high) in enumerate(ranges)
    ]
    shards = run_tasks("Write", tasks, staging / _OUTCOMES_FOLDER, options)
    near = find_near_duplicates(signatures, options.near_duplicate_similarity) if options.near_duplicates else None
    return shards, near


def _count_bad(found: Discovery, reads: list[ReadOutcome]) -> BadCount:
    of_discovery = BadCount()
    for bad in found.bad:
        of_discovery.add(bad)
    return of_discovery.merge(read.bad for read in reads)


def _collect_quarantine(found: Discovery, num_tasks: int, staging: Path) -> None:
    """One file for what discovery found, then those of the tasks, in the order of the input."""
    folder = staging / QUARANTINE_FOLDER
    folder.mkdir()
    with write_quarantine(folder / "inputs.jsonl") as keep:
        for bad in found.bad:
            keep(bad)
    for number in range(num_tasks):
        path = quarantine_file(staging, number)
        if path.exists():
            path.rename(folder / f"records-{number:06d}.jsonl")


def _nothing_error(found: Discovery, bad: BadCount) -> CorpusError:
    seen = f"{len(found.files):,} files, {found.total_bytes:,} bytes"
    ignored = ", ".join(f"{count:,} {ending or 'without ending'}" for ending, count in sorted(found.ignored.items()))
    lines = [f"no document in the input ({seen}; files no reader is for: {ignored or 'none'})"]
    lines += [f"  {line}" for line in bad.first[:5]]
    return CorpusError("\n".join([*lines, "nothing was written; give inputs that hold text"]))


def _report(
    found: Discovery,
    reads: list[ReadOutcome],
    bad: BadCount,
    duplicates: Duplicates,
    near: NearDuplicates | None,
    shards: list[Shard],
    seconds: float,
) -> IngestReport:
    by_source: dict[str, int] = {}
    for shard in shards:
        for source, size in shard.text_bytes_by_source.items():
            by_source[source] = by_source.get(source, 0) + size
    return IngestReport(
        span_folder="",  # Known once it is published.
        unchanged=False,
        num_documents=sum(shard.num_documents for shard in shards),
        num_bytes=sum(shard.text_bytes for shard in shards),
        num_files=len(found.files),
        num_input_bytes=found.total_bytes,
        num_shards=len(shards),
        num_duplicates=duplicates.count,
        duplicate_examples=duplicates.examples,
        bad=bad.by_reason,
        bad_examples=bad.first,
        num_empty_code_files=sum(read.num_empty_code_files for read in reads),
        num_ignored_files=dict(sorted(found.ignored.items())),
        num_near_duplicates=near.count if near else None,
        near_duplicate_examples=near.examples if near else [],
        bytes_by_source=dict(sorted(by_source.items())),
        seconds=seconds,
    )


def _known_span(options: IngestOptions, found: Discovery) -> IngestReport | None:
    """The report of the span that these files are in already.

    Raises:
      ConfigError: the span that was asked for holds something else.
    """
    taken = spans(Path(options.out))
    if options.span is None:
        return load_if_same(taken[max(taken)], options, found) if taken else None
    if options.span not in taken:
        return None
    known = load_if_same(taken[options.span], options, found)
    if known is None:
        raise span_taken_error(taken[options.span])
    return known
