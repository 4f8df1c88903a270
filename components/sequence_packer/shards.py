"""Shards on disk: row files, their side index, and the split that they make up."""

import contextlib
import dataclasses
import hashlib
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from components.sequence_packer.packing import Packing
from foundation import atomic, tfrecord
from foundation.errors import CorpusError
from foundation.rows import INDEX_FILE_PREFIX, MANIFEST_NAME, ROW_FILE_PREFIX, Ledger, PackingManifest

_TOKENS_PER_BLOCK = 1 << 18
"""Rows are made and written in blocks of about so many tokens: a few MiB whatever the shard's size."""

_INDEX_LINES_PER_GROUP = 64 * 1024
"""Row group of the index: small enough that one row's lines cost one group, large enough to compress."""


@dataclasses.dataclass(frozen=True)
class ShardReport:
    """One shard as written, under a staging name until its split is finished."""

    partition: int
    """Position among the shards; gaps are possible (a partition without documents)."""

    rows_path: str
    index_path: str
    num_rows: int
    num_pad_tokens: int
    num_cut_documents: int
    num_lost_targets: int
    tokens_by_source: dict[str, int]
    ledger: Ledger
    sha256: str
    """Of the row file."""


def write_shard(folder: Path, partition: int, packing: Packing) -> ShardReport:
    """Writes rows and index under names that no other attempt uses, so a repeated bundle does no harm.

    Tokens and padding in the report are counted in what was written, not in what was planned.

    Raises:
      OSError: the disk; nothing is left behind then.
    """
    rows_path = atomic.staging_path(folder / f"{ROW_FILE_PREFIX}-{partition:05d}")
    index_path = atomic.staging_path(folder / f"{INDEX_FILE_PREFIX}-{partition:05d}")
    rows_per_block = max(1, _TOKENS_PER_BLOCK // packing.row_format.row_len)
    num_tokens = num_pad_tokens = 0
    digest = hashlib.sha256()
    try:
        with rows_path.open("wb") as file:
            for first in range(0, packing.num_rows, rows_per_block):
                token_ids, segment_ids = packing.rows(first, min(first + rows_per_block, packing.num_rows))
                records = tfrecord.frame(packing.row_format.encode(token_ids, segment_ids))
                file.write(records.data)
                digest.update(records.data)
                written = int(np.count_nonzero(segment_ids))
                num_tokens += written
                num_pad_tokens += segment_ids.size - written
            file.flush()
            os.fsync(file.fileno())
        with index_path.open("wb") as file:
            pq.write_table(packing.index(), file, row_group_size=_INDEX_LINES_PER_GROUP, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        for path in (rows_path, index_path):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        raise
    return ShardReport(
        partition=partition,
        rows_path=str(rows_path),
        index_path=str(index_path),
        num_rows=packing.num_rows,
        num_pad_tokens=num_pad_tokens,
        num_cut_documents=packing.num_cut_documents,
        num_lost_targets=packing.num_lost_targets,
        tokens_by_source=packing.tokens_by_source,
        ledger=dataclasses.replace(packing.ledger, tokens_packed=num_tokens),
        sha256=digest.hexdigest(),
    )


def finish_split(
    folder: Path, shards: list[ShardReport], entered: Ledger, description: PackingManifest
) -> PackingManifest:
    """Checks the books, gives the shards their names, writes `packing.json` last. May be run again.

    Args:
      folder: of the split.
      shards: in any order.
      entered: the `_in` side of the ledger, counted where the documents were read.
      description: what is known before packing (split, policy, format, tokenizer); its counts are replaced.

    Raises:
      CorpusError: the split has no tokens; the ledger does not balance.
    """
    # A partition without a single token has no rows and needs no file, but its dropped documents count.
    shards = sorted(shards, key=lambda shard: shard.partition)
    filled = [shard for shard in shards if shard.num_rows]
    if not filled:
        raise CorpusError(
            f"split {description.split!r} holds no tokens ({entered.documents_in} documents were read); "
            "add documents, or give the split a larger share in the configuration"
        )
    manifest = dataclasses.replace(
        description,
        num_rows=sum(shard.num_rows for shard in filled),
        num_pad_tokens=sum(shard.num_pad_tokens for shard in filled),
        num_cut_documents=sum(shard.num_cut_documents for shard in filled),
        num_lost_targets=sum(shard.num_lost_targets for shard in filled),
        tokens_by_source=_sum_by_source(filled),
        shard_rows=[shard.num_rows for shard in filled],
        shard_sha256=[shard.sha256 for shard in filled],
        ledger=_balance(entered, shards),
    )
    for shard, rows_name, index_name in zip(filled, manifest.shard_names, manifest.index_names, strict=True):
        _settle(Path(shard.rows_path), folder / rows_name)
        _settle(Path(shard.index_path), folder / index_name)
    manifest.save(folder)
    return manifest


def prepare_folder(folder: Path) -> None:
    """Makes `folder` and removes what an earlier attempt left in it.

    The manifest goes first: without it nothing else counts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST_NAME).unlink(missing_ok=True)
    for prefix in (atomic.STAGING_PREFIX, ROW_FILE_PREFIX, INDEX_FILE_PREFIX):
        remove_files(folder, prefix)


def remove_files(folder: Path, prefix: str) -> None:
    """Removes the files of `folder` whose names start with `prefix`."""
    for path in folder.glob(f"{prefix}*"):
        path.unlink(missing_ok=True)


def _balance(entered: Ledger, shards: list[ShardReport]) -> Ledger:
    """The `in` side as read, the other sides as written; raises CorpusError if they do not meet."""
    written = sum((shard.ledger for shard in shards), Ledger())
    ledger = dataclasses.replace(
        written, documents_in=entered.documents_in, tokens_in=entered.tokens_in, bytes_in=entered.bytes_in
    )
    ledger.check()
    return ledger


def _sum_by_source(shards: list[ShardReport]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for shard in shards:
        for source, tokens in shard.tokens_by_source.items():
            totals[source] = totals.get(source, 0) + tokens
    return dict(sorted(totals.items()))


def _settle(staged: Path, target: Path) -> None:
    # A second attempt finds what the first one renamed already.
    if staged.exists() or not target.exists():
        staged.replace(target)
