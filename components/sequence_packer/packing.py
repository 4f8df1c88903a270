"""Packing of documents that are in memory: from columns to rows, index and ledger. Pure functions, no files."""

import dataclasses

import numpy as np
import pyarrow as pa

from components.sequence_packer.documents import DocumentBatch, gather_ranges
from components.sequence_packer.policies import RowPlan, plan_rows
from foundation.rows import Ledger, RowFormat
from foundation.special_tokens import PAD_ID

NO_TOKENS = "no_tokens"
"""The one reason for which a document is dropped: there is nothing of it to pack."""


@dataclasses.dataclass(frozen=True, eq=False)
class Packing:
    """Documents and where each of their tokens goes. Rows are made on demand, a block at a time."""

    documents: DocumentBatch
    row_format: RowFormat
    plan: RowPlan
    """Its `document` counts in `documents`."""

    @property
    def num_rows(self) -> int:
        return self.plan.num_rows

    @property
    def num_tokens(self) -> int:
        return int(self.plan.lengths.sum())

    @property
    def num_pad_tokens(self) -> int:
        return self.num_rows * self.row_format.row_len - self.num_tokens

    @property
    def num_cut_documents(self) -> int:
        """Documents that lie in more than one row."""
        return int(np.count_nonzero(self._segments_per_document > 1))

    @property
    def num_lost_targets(self) -> int:
        """Tokens that nothing predicts because their document was cut before them: one per cut."""
        counts = self._segments_per_document
        return int((counts[counts > 0] - 1).sum())

    @property
    def tokens_by_source(self) -> dict[str, int]:
        sources, group = np.unique(self.documents.sources[self.plan.document], return_inverse=True)
        totals = np.zeros(len(sources), dtype=np.int64)
        np.add.at(totals, group, self.plan.lengths)
        return dict(zip(sources.tolist(), totals.tolist(), strict=True))

    @property
    def ledger(self) -> Ledger:
        """In: what `documents` holds. Packed: what the plan places. Dropped: documents without tokens."""
        documents = self.documents
        packed = self._segments_per_document > 0
        empty = documents.lengths == 0
        num_empty = int(np.count_nonzero(empty))
        return Ledger(
            documents_in=len(documents),
            documents_packed=int(np.count_nonzero(packed)),
            documents_dropped=num_empty,
            tokens_in=len(documents.token_ids),
            tokens_packed=self.num_tokens,
            bytes_in=int(documents.num_bytes.sum()),
            bytes_packed=int(documents.num_bytes[packed].sum()),
            bytes_dropped=int(documents.num_bytes[empty].sum()),
            dropped_by_reason={NO_TOKENS: num_empty} if num_empty else {},
        )

    def rows(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows `first` to `last` (not included).

        Returns:
          token_ids and segment_ids, each [last - first, seq_len + 1], of the row format's dtype.
        """
        plan, row_len = self.plan, self.row_format.row_len
        here = slice(*np.searchsorted(plan.row, [first, last]))
        document, lengths = plan.document[here], plan.lengths[here]
        filled = np.zeros(last - first, dtype=np.int64)
        np.add.at(filled, plan.row[here] - first, lengths)
        is_token = np.arange(row_len) < filled[:, None]

        token_ids = np.full((last - first, row_len), PAD_ID, dtype=self.row_format.dtype)
        starts = self.documents.starts[document] + plan.token_start[here]
        token_ids[is_token] = gather_ranges(self.documents.token_ids, starts, lengths)
        segment_ids = np.zeros_like(token_ids)
        segment_ids[is_token] = np.repeat(plan.segment[here].astype(segment_ids.dtype), lengths)
        return token_ids, segment_ids

    def index(self) -> pa.Table:
        """One line per segment: row, segment, doc_id, source, token_start, token_end (a range in the document)."""
        plan = self.plan
        return pa.table(
            {
                "row": pa.array(plan.row, pa.int64()),
                "segment": pa.array(plan.segment.astype(np.int32)),
                "doc_id": pa.array(self.documents.doc_ids[plan.document], pa.string()),
                "source": pa.array(self.documents.sources[plan.document], pa.string()),
                "token_start": pa.array(plan.token_start, pa.int64()),
                "token_end": pa.array(plan.token_end, pa.int64()),
            }
        )

    @property
    def _segments_per_document(self) -> np.ndarray:
        return np.bincount(self.plan.document, minlength=len(self.documents))


def pack_documents(documents: DocumentBatch, row_format: RowFormat, policy: str) -> Packing:
    """Packs `documents`; the result depends on which they are, not on their order.

    Raises:
      CorpusError: a `doc_id` occurs twice.
      ConfigError: unknown policy.
    """
    order = documents.packing_order()
    plan = plan_rows(policy, documents.lengths[order], row_format.row_len)
    # The tokens stay where they are; only the plan learns the order.
    return Packing(documents, row_format, dataclasses.replace(plan, document=order[plan.document]))
