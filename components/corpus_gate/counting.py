"""Counts over all documents, in one pass of Beam: exact, and the same whatever the order of bundles.

Texts are compared by their SHA-256, so what is exchanged between workers is small whatever the documents'
length. Of offending documents the first few by doc_id are kept, and the number of all.
"""

import collections
import dataclasses
import hashlib
import heapq
from collections.abc import Iterable, Iterator

import apache_beam as beam

from foundation.documents import DOC_ID, SOURCE, TEXT
from foundation.errors import CorpusError
from foundation.tfrecord import read_records

MOST_KEPT = 5
"""Offenders kept by name, of each kind."""

OFFENCES = ("invalid_utf8", "nul", "empty", "overlong", "replacement_characters")


@dataclasses.dataclass
class SplitFacts:
    """What one split holds."""

    num_documents: int = 0
    num_bytes: int = 0
    num_characters: int = 0
    num_replacement_characters: int = 0
    length_histogram: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    """Documents by the number of binary digits of their length in bytes: 0 empty, 1 one byte, 2 two or three, ..."""

    documents_by_source: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    num_offending: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    offenders: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """By offence, the first doc_ids."""

    def add(self, other: "SplitFacts") -> "SplitFacts":
        """The sum; changes and returns itself."""
        self.num_documents += other.num_documents
        self.num_bytes += other.num_bytes
        self.num_characters += other.num_characters
        self.num_replacement_characters += other.num_replacement_characters
        self.length_histogram.update(other.length_histogram)
        self.documents_by_source.update(other.documents_by_source)
        self.num_offending.update(other.num_offending)
        for offence, names in other.offenders.items():
            self.offenders[offence] = first_of(self.offenders.get(offence, []) + names)
        return self


@dataclasses.dataclass
class Facts:
    """What the gate knows of a corpus."""

    splits: dict[str, SplitFacts]
    num_duplicate_ids: int = 0
    duplicate_ids: list[str] = dataclasses.field(default_factory=list)
    num_duplicates: int = 0
    """Documents whose text another of their split has, all but one of each."""

    duplicates: list[str] = dataclasses.field(default_factory=list)
    num_leaked: int = 0
    """Documents of `eval` whose text is in `train`, too."""

    leaked: list[str] = dataclasses.field(default_factory=list)

    def offending(self, offence: str) -> list[str]:
        """The first doc_ids over all splits."""
        return first_of([name for split in self.splits.values() for name in split.offenders.get(offence, [])])


def first_of(names: Iterable[str]) -> list[str]:
    """The first few in order."""
    return heapq.nsmallest(MOST_KEPT, names)


class CountDocuments(beam.PTransform):
    """PCollection of (split, path of a TFRecord file of documents) -> PCollection of one `Facts`."""

    def __init__(self, max_document_bytes: int):
        super().__init__()
        self._max_document_bytes = max_document_bytes

    def expand(self, files: beam.PCollection) -> beam.PCollection:
        documents = files | beam.Reshuffle() | "Read" >> beam.FlatMapTuple(read_file)
        splits = (
            documents
            | "Describe" >> beam.Map(describe, self._max_document_bytes)
            | "AddUp" >> beam.CombinePerKey(_AddUp())
            | "Splits" >> beam.combiners.ToDict()
        )
        texts = documents | "ByText" >> beam.Map(_by_text) | "SameText" >> beam.CombinePerKey(_Holders())
        ids = documents | "ById" >> beam.Map(_by_id) | "SameId" >> beam.CombinePerKey(_Holders())
        repeated = (
            texts | "RepeatedTexts" >> beam.FlatMap(_repeated_text),
            ids | "RepeatedIds" >> beam.FlatMap(_repeated_id),
        ) | beam.Flatten()
        totals = (
            repeated | "CountRepeated" >> beam.CombinePerKey(_CountAndFirst()) | "Repeated" >> beam.combiners.ToDict()
        )
        return splits | "Together" >> beam.Map(_facts, beam.pvalue.AsSingleton(totals, default_value={}))


Document = tuple[str, str, bytes, str]
"""split, doc_id, text, source."""


def read_file(split: str, path: str) -> Iterator[Document]:
    """The documents of one file.

    Raises:
      CorpusError: the file is damaged, or a record is no document; names file and record.
    """
    from tensorflow.core.example import example_pb2

    for number, record in enumerate(read_records(path)):
        try:
            features = example_pb2.Example.FromString(record).features.feature
        except Exception as error:
            raise CorpusError(f"{path}, record {number}: no tf.Example ({error}); ingest the corpus again") from error
        values = {name: features[name].bytes_list.value[:1] for name in (DOC_ID, TEXT, SOURCE) if name in features}
        doc_id, text, source = ((values.get(name) or [b""])[0] for name in (DOC_ID, TEXT, SOURCE))
        yield split, doc_id.decode(errors="replace"), text, source.decode(errors="replace")


def describe(document: Document, max_document_bytes: int) -> tuple[str, SplitFacts]:
    """One document as facts of its split."""
    split, doc_id, text, source = document
    replaced = text.count(b"\xef\xbf\xbd")
    try:
        characters, valid = len(text.decode()), True
    except UnicodeDecodeError:
        characters, valid = len(text), False
    offences = {
        "invalid_utf8": not valid,
        "nul": b"\0" in text,
        "empty": not text,
        "overlong": len(text) > max_document_bytes,
        "replacement_characters": replaced > 0,
    }
    committed = [offence for offence, is_so in offences.items() if is_so]
    return split, SplitFacts(
        num_documents=1,
        num_bytes=len(text),
        num_characters=characters,
        num_replacement_characters=replaced,
        length_histogram=collections.Counter([len(text).bit_length()]),
        documents_by_source=collections.Counter([source]),
        num_offending=collections.Counter(committed),
        offenders={offence: [doc_id] for offence in committed},
    )


class _AddUp(beam.CombineFn):
    """Sum of SplitFacts."""

    def create_accumulator(self) -> SplitFacts:
        return SplitFacts()

    def add_input(self, total: SplitFacts, facts: SplitFacts) -> SplitFacts:
        return total.add(facts)

    def merge_accumulators(self, totals: Iterable[SplitFacts]) -> SplitFacts:
        merged = SplitFacts()
        for total in totals:
            merged.add(total)
        return merged

    def extract_output(self, total: SplitFacts) -> SplitFacts:
        return total


class _Holders(beam.CombineFn):
    """Who has a text or an id: number of documents by split, and the first of each split by doc_id."""

    def create_accumulator(self) -> dict[str, tuple[int, list[str]]]:
        return {}

    def add_input(
        self, holders: dict[str, tuple[int, list[str]]], holder: tuple[str, str]
    ) -> dict[str, tuple[int, list[str]]]:
        split, doc_id = holder
        count, names = holders.get(split, (0, []))
        # One more than is reported, since the first of them is no repetition.
        holders[split] = (count + 1, heapq.nsmallest(MOST_KEPT + 1, [*names, doc_id]))
        return holders

    def merge_accumulators(self, parts: Iterable[dict[str, tuple[int, list[str]]]]) -> dict[str, tuple[int, list[str]]]:
        merged: dict[str, tuple[int, list[str]]] = {}
        for part in parts:
            for split, (count, names) in part.items():
                known, first = merged.get(split, (0, []))
                merged[split] = (known + count, heapq.nsmallest(MOST_KEPT + 1, first + names))
        return merged

    def extract_output(self, holders: dict[str, tuple[int, list[str]]]) -> dict[str, tuple[int, list[str]]]:
        return holders


class _CountAndFirst(beam.CombineFn):
    """Sum of counts, and the first names."""

    def create_accumulator(self) -> tuple[int, list[str]]:
        return 0, []

    def add_input(self, total: tuple[int, list[str]], part: tuple[int, list[str]]) -> tuple[int, list[str]]:
        return total[0] + part[0], first_of(total[1] + part[1])

    def merge_accumulators(self, totals: Iterable[tuple[int, list[str]]]) -> tuple[int, list[str]]:
        count, names = 0, list[str]()
        for total in totals:
            count, names = count + total[0], first_of(names + total[1])
        return count, names

    def extract_output(self, total: tuple[int, list[str]]) -> tuple[int, list[str]]:
        return total


def _by_text(document: Document) -> tuple[bytes, tuple[str, str]]:
    split, doc_id, text, _ = document
    return hashlib.sha256(text).digest(), (split, doc_id)


def _by_id(document: Document) -> tuple[str, tuple[str, str]]:
    split, doc_id, _, _ = document
    return doc_id, (split, doc_id)


def _repeated_text(item: tuple[bytes, dict[str, tuple[int, list[str]]]]) -> Iterator[tuple[str, tuple[int, list[str]]]]:
    _, holders = item
    for count, names in holders.values():
        if count > 1:
            yield "duplicates", (count - 1, names[1:])
    if "train" in holders and "eval" in holders:
        count, names = holders["eval"]
        yield "leaked", (count, first_of(names))


def _repeated_id(item: tuple[str, dict[str, tuple[int, list[str]]]]) -> Iterator[tuple[str, tuple[int, list[str]]]]:
    doc_id, holders = item
    count = sum(count for count, _ in holders.values())
    if count > 1:
        yield "duplicate_ids", (count - 1, [doc_id])


def _facts(splits: dict[str, SplitFacts], repeated: dict[str, tuple[int, list[str]]]) -> Facts:
    counts = {kind: repeated.get(kind, (0, [])) for kind in ("duplicate_ids", "duplicates", "leaked")}
    return Facts(
        splits=dict(sorted(splits.items())),
        num_duplicate_ids=counts["duplicate_ids"][0],
        duplicate_ids=counts["duplicate_ids"][1],
        num_duplicates=counts["duplicates"][0],
        duplicates=counts["duplicates"][1],
        num_leaked=counts["leaked"][0],
        leaked=counts["leaked"][1],
    )
