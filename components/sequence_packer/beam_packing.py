"""Packing at scale, in Beam: read, deal the documents out to partitions, pack each, finish the split.

Memory is bounded by a partition (about `tokens_per_shard` tokens, or one longer document), and the result
depends on the documents alone: the number of partitions follows from the total of tokens, a
document's partition and its place there from the hash of its id. Bundles, workers and their
order have no say.

What is wrong with the documents travels as data (a `Fault`) to the end of the split and is
reported there by `report_path`: an exception in a worker would reach the caller as text of an
unknown class, and would show the first offender only.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import apache_beam as beam
import numpy as np

from components.sequence_packer.documents import DocumentBatch, name_some
from components.sequence_packer.packing import pack_documents
from components.sequence_packer.reading import read_documents
from components.sequence_packer.shards import ShardReport, finish_split, write_shard
from foundation import atomic
from foundation.errors import CorpusError, HostError
from foundation.rows import Ledger, PackingManifest

_MAX_REPORTED_FAULTS = 5
_FAULTS_NAME = f"{atomic.STAGING_PREFIX}faults.json"


@dataclasses.dataclass(frozen=True, order=True)
class Fault:
    """Something that fails the component."""

    kind: str
    """`corpus` or `host`: which error it becomes."""

    message: str


class PackSplit(beam.PTransform):
    """Files of one split to finished rows in `folder`. Applied to a pipeline."""

    def __init__(self, files: list[str], folder: str, tokens_per_shard: int, description: PackingManifest):
        """
        Args:
          files: of tokenized documents.
          folder: exists; receives shards, index and `packing.json`.
          tokens_per_shard: how many tokens a shard holds, about.
          description: split, policy, row format, vocabulary size and tokenizer; its counts are ignored.
        """
        super().__init__()
        self._files = files
        self._folder = folder
        self._tokens_per_shard = tokens_per_shard
        self._description = description

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        read = (
            pipeline
            | "Files" >> beam.Create(self._files)
            | "SpreadFiles" >> beam.Reshuffle()
            | "Read"
            >> beam.ParDo(_ReadDoFn(self._description))
            .with_output_types(DocumentBatch)
            .with_outputs("faults", main="batches")
        )
        entered = read.batches | "Enter" >> beam.Map(_enter) | "SumEntered" >> beam.CombineGlobally(_sum_ledgers)
        packed = (
            read.batches
            | "Deal" >> beam.FlatMap(_deal, beam.pvalue.AsSingleton(entered), self._tokens_per_shard)
            | "Partition" >> beam.GroupByKey()
            | "Pack"
            >> beam.ParDo(_PackDoFn(self._folder, self._description))
            .with_output_types(ShardReport)
            .with_outputs("faults", main="shards")
        )
        faults = (read.faults, packed.faults) | "Faults" >> beam.Flatten()
        return (
            pipeline
            | "Once" >> beam.Create([self._folder])
            | "Finish"
            >> beam.Map(
                _finish,
                shards=beam.pvalue.AsList(packed.shards),
                entered=beam.pvalue.AsSingleton(entered),
                faults=beam.pvalue.AsList(faults),
                description=self._description,
            )
        )


def load_outcome(folder: str | Path) -> PackingManifest:
    """What a `PackSplit` that has run left in `folder`.

    Raises:
      CorpusError, HostError: the faults it met.
    """
    path = Path(folder) / _FAULTS_NAME
    if not path.exists():
        return PackingManifest.load(folder)
    faults = [Fault(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))]
    shown = "\n".join(fault.message for fault in faults[:_MAX_REPORTED_FAULTS])
    rest = len(faults) - _MAX_REPORTED_FAULTS
    message = f"{shown}\nand {rest} more of this kind" if rest > 0 else shown
    raise (HostError if any(fault.kind == "host" for fault in faults) else CorpusError)(message)


class _ReadDoFn(beam.DoFn):
    """Path -> DocumentBatch, its token ids checked and narrowed to the dtype of the rows."""

    def __init__(self, description: PackingManifest):
        self._vocab_size = description.vocab_size
        self._dtype = description.row_format.dtype

    def process(self, path: str) -> Iterator[DocumentBatch | beam.pvalue.TaggedOutput]:
        try:
            for batch in read_documents(path):
                wrong = batch.out_of_vocab(self._vocab_size)
                if wrong.any():
                    yield _fault("corpus", _out_of_vocab_message(batch, wrong, path, self._vocab_size))
                    continue
                yield dataclasses.replace(batch, token_ids=batch.token_ids.astype(self._dtype))
        except CorpusError as error:
            yield _fault("corpus", str(error))
        except OSError as error:
            yield _fault("host", f"cannot read {path} ({error}); make it readable, then run again")


class _PackDoFn(beam.DoFn):
    """(partition, its batches) -> ShardReport."""

    def __init__(self, folder: str, description: PackingManifest):
        self._folder = folder
        self._row_format = description.row_format
        self._policy = description.policy

    def process(self, keyed: tuple[int, Iterable[DocumentBatch]]) -> Iterator[ShardReport | beam.pvalue.TaggedOutput]:
        partition, batches = keyed
        try:
            packing = pack_documents(DocumentBatch.concat(list(batches)), self._row_format, self._policy)
            yield write_shard(Path(self._folder), partition, packing)
        except CorpusError as error:
            yield _fault("corpus", str(error))
        except OSError as error:
            yield _fault(
                "host", f"cannot write a shard to {self._folder} ({error}); free or enlarge the disk, then run again"
            )


def _fault(kind: str, message: str) -> beam.pvalue.TaggedOutput:
    return beam.pvalue.TaggedOutput("faults", Fault(kind, message))


def _out_of_vocab_message(batch: DocumentBatch, wrong: np.ndarray, path: str, vocab_size: int) -> str:
    document = int(np.flatnonzero(wrong)[0])
    start, length = int(batch.starts[document]), int(batch.lengths[document])
    ids = batch.token_ids[start : start + length]
    bad = int(ids[(ids < 0) | (ids >= vocab_size)][0])
    return (
        f"{path}: token id outside the vocabulary; vocab_size must be that of the tokenizer that made the ids. "
        f"Received: token_id={bad}, vocab_size={vocab_size}, doc_id={name_some(batch.doc_ids[wrong].tolist())}"
    )


def _enter(batch: DocumentBatch) -> Ledger:
    return Ledger(documents_in=len(batch), tokens_in=int(batch.lengths.sum()), bytes_in=int(batch.num_bytes.sum()))


def _sum_ledgers(ledgers: Iterable[Ledger]) -> Ledger:
    return sum(ledgers, Ledger())


def _deal(batch: DocumentBatch, entered: Ledger, tokens_per_shard: int) -> Iterator[tuple[int, DocumentBatch]]:
    """The part of `batch` that belongs to each partition."""
    num_partitions = max(1, -(-entered.tokens_in // tokens_per_shard))
    partitions = (batch.order_keys % np.uint64(num_partitions)).astype(np.int64)
    order = np.argsort(partitions, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(partitions[order])) + 1):
        yield int(partitions[members[0]]), batch.take(members)


def _finish(
    folder: str, shards: list[ShardReport], entered: Ledger, faults: list[Fault], description: PackingManifest
) -> str:
    faults = list(faults)
    if not faults:
        try:
            finish_split(Path(folder), list(shards), entered, description)
        except CorpusError as error:
            faults.append(Fault("corpus", str(error)))
        except OSError as error:
            faults.append(Fault("host", f"cannot finish {folder} ({error}); free or enlarge the disk, then run again"))
    if faults:
        listed = [dataclasses.asdict(fault) for fault in sorted(set(faults))]
        atomic.write_text(Path(folder) / _FAULTS_NAME, json.dumps(listed))
    return folder
