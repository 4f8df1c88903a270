"""Tokenized documents as columns: what travels through the packer instead of one object per document."""

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np

from foundation.errors import CorpusError

_MAX_NAMED = 5
"""Offenders named in a message: enough to find the pattern, few enough to read."""


@dataclasses.dataclass(frozen=True, eq=False)
class DocumentBatch:
    """N documents; their tokens stand in one array, one document after another."""

    doc_ids: np.ndarray
    """[N] of str."""

    sources: np.ndarray
    """[N] of str."""

    num_bytes: np.ndarray
    """[N] int64: UTF-8 bytes of each text."""

    lengths: np.ndarray
    """[N] int64: tokens of each document; 0 is possible here and is dropped by the packer."""

    token_ids: np.ndarray
    """[sum of lengths], any unsigned or signed integer dtype."""

    order_keys: np.ndarray
    """[N] uint64: `order_key` of each `doc_id`."""

    @classmethod
    def build(
        cls,
        doc_ids: Sequence[str],
        sources: Sequence[str],
        num_bytes: np.ndarray,
        lengths: np.ndarray,
        token_ids: np.ndarray,
    ) -> "DocumentBatch":
        """Columns and the order keys that follow from the ids."""
        return cls(
            doc_ids=_strings(doc_ids),
            sources=_strings(sources),
            num_bytes=np.asarray(num_bytes, dtype=np.int64),
            lengths=np.asarray(lengths, dtype=np.int64),
            token_ids=np.asarray(token_ids),
            order_keys=np.array([order_key(doc_id) for doc_id in doc_ids], dtype=np.uint64),
        )

    @classmethod
    def concat(cls, batches: Sequence["DocumentBatch"]) -> "DocumentBatch":
        """The documents of all `batches`, at least one, in order."""
        return cls(
            **{
                field.name: np.concatenate([getattr(batch, field.name) for batch in batches])
                for field in dataclasses.fields(cls)
            }
        )

    def __len__(self) -> int:
        return len(self.doc_ids)

    @property
    def starts(self) -> np.ndarray:
        """[N] int64: where each document begins in `token_ids`."""
        return np.cumsum(self.lengths) - self.lengths

    def take(self, documents: np.ndarray) -> "DocumentBatch":
        """The documents at the indices `documents`, in that order."""
        lengths = self.lengths[documents]
        return DocumentBatch(
            doc_ids=self.doc_ids[documents],
            sources=self.sources[documents],
            num_bytes=self.num_bytes[documents],
            lengths=lengths,
            token_ids=gather_ranges(self.token_ids, self.starts[documents], lengths),
            order_keys=self.order_keys[documents],
        )

    def packing_order(self) -> np.ndarray:
        """[N] int64: the documents sorted by order key, whatever order they arrived in.

        Raises:
          CorpusError: a `doc_id` occurs twice.
        """
        order = np.lexsort((self.doc_ids, self.order_keys))
        doc_ids = self.doc_ids[order]
        repeated = np.unique(doc_ids[1:][doc_ids[1:] == doc_ids[:-1]])
        if len(repeated):
            raise CorpusError(
                f"{len(repeated)} doc_id(s) occur more than once; doc_id must be unique in the corpus, so rename or "
                f"remove the copies and ingest again. Received: doc_id={name_some(repeated.tolist())}"
            )
        return order

    def out_of_vocab(self, vocab_size: int) -> np.ndarray:
        """[N] bool: which documents hold a token id below 0 or not below `vocab_size`."""
        wrong = np.zeros(len(self), dtype=bool)
        if not len(self.token_ids):
            return wrong
        # Cheap on the whole array; the search for the document comes only where something is wrong.
        if self.token_ids.min() >= 0 and self.token_ids.max() < vocab_size:
            return wrong
        places = np.flatnonzero((self.token_ids < 0) | (self.token_ids >= vocab_size))
        wrong[np.searchsorted(np.cumsum(self.lengths), places, side="right")] = True
        return wrong


def order_key(doc_id: str) -> int:
    """A 64-bit hash of `doc_id` that is the same in every process.

    It decides the shard and the place in it. So neighbours in a row are not neighbours of the input
    (where whole stretches come from one source), and the order depends on nothing but the ids.
    """
    return int.from_bytes(hashlib.blake2b(doc_id.encode(), digest_size=8).digest(), "little")


def gather_ranges(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """`values[s : s + n]` for each start s and length n, one after another; no loop over ranges."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return values[np.arange(total) + np.repeat(starts - (ends - lengths), lengths)]


def name_some(doc_ids: Sequence[str]) -> str:
    """The first few of `doc_ids` as text, and how many more there are."""
    shown = ", ".join(repr(doc_id) for doc_id in doc_ids[:_MAX_NAMED])
    rest = len(doc_ids) - _MAX_NAMED
    return f"{shown} and {rest} more" if rest > 0 else shown


def _strings(values: Sequence[str]) -> np.ndarray:
    # dtype object: fixed-width numpy strings would pad every id to the longest one.
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
