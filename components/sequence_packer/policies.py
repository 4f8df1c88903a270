"""How documents are laid into rows: three policies, each a function of the documents' lengths alone.

    concat    documents run on and are cut at row ends. Only the last row has padding.
    best_fit  a document that fits in a row is never cut (best-fit-decreasing, arXiv 2404.10830);
              a longer one is first split in chunks of one row.
    pad       one document, or one chunk of a longer one, per row.

Cuts do not overlap: the part of a document in the next row begins with the token after the last one
in this row. So every token is in exactly one place and the ledger is exact. The price is one
training target per cut, the first token of the later part, which nothing predicts; it is counted
as a lost target (with `concat` at most one in `seq_len + 1` tokens).
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from foundation.errors import ConfigError


@dataclasses.dataclass(frozen=True, eq=False)
class RowPlan:
    """S segments in the order in which they are written: by row, then by place in the row.

    A row's segments stand side by side from its first token on; padding follows the last.
    """

    document: np.ndarray
    """[S] int64: index of the document."""

    token_start: np.ndarray
    """[S] int64: first token of the segment, counted in its document."""

    token_end: np.ndarray
    """[S] int64: one past its last token."""

    row: np.ndarray
    """[S] int64, never decreasing: which row, counted from 0."""

    @property
    def num_rows(self) -> int:
        return int(self.row[-1]) + 1 if len(self.row) else 0

    @property
    def lengths(self) -> np.ndarray:
        """[S] int64: tokens of each segment."""
        return self.token_end - self.token_start

    @property
    def segment(self) -> np.ndarray:
        """[S] int64: number of the segment in its row, from 1."""
        return np.arange(len(self.row)) - np.searchsorted(self.row, self.row) + 1


def plan_rows(policy: str, lengths: np.ndarray, row_len: int) -> RowPlan:
    """Lays documents into rows.

    Args:
      policy: a key of `POLICIES`.
      lengths: [N] int64, tokens of each document; those of length 0 get no segment.
      row_len: tokens in a row.

    Raises:
      ConfigError: unknown policy.
    """
    if policy not in POLICIES:
        raise ConfigError(f"unknown packing policy; choose one of {', '.join(POLICIES)}. Received: policy={policy!r}")
    return POLICIES[policy](lengths, row_len)


def plan_concat(lengths: np.ndarray, row_len: int) -> RowPlan:
    """Documents run on; every row but the last is full."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    total = int(ends[-1]) if len(ends) else 0
    # A segment begins where a document or a row does, in the stream of all tokens.
    begins = np.union1d(starts[lengths > 0], np.arange(0, total, row_len)).astype(np.int64)
    document = np.searchsorted(ends, begins, side="right")
    token_start = begins - starts[document]
    segment_lengths = np.diff(np.append(begins, total))
    return RowPlan(document, token_start, token_start + segment_lengths, begins // row_len)


def plan_pad(lengths: np.ndarray, row_len: int) -> RowPlan:
    """Every chunk has a row to itself."""
    document, token_start, token_end = _chunks(lengths, row_len)
    return RowPlan(document, token_start, token_end, np.arange(len(document)))


def plan_best_fit(lengths: np.ndarray, row_len: int) -> RowPlan:
    """Longest chunk first, each into the fullest row that still holds it."""
    document, token_start, token_end = _chunks(lengths, row_len)
    row, placed = best_fit_decreasing(token_end - token_start, row_len)
    order = np.lexsort((placed, row))
    return RowPlan(document[order], token_start[order], token_end[order], row[order])


POLICIES: dict[str, Callable[[np.ndarray, int], RowPlan]] = {
    "concat": plan_concat,
    "best_fit": plan_best_fit,
    "pad": plan_pad,
}


def best_fit_decreasing(sizes: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Bins of items, by best fit decreasing. Equal sizes keep their order, so the result is a pure function.

    Args:
      sizes: [M] int64, each from 1 to `capacity`.
      capacity: size of a bin.

    Returns:
      bin of each item, [M] int64, bins numbered in the order they were opened; when each item was
      placed, [M] int64.
    """
    order = np.argsort(-sizes, kind="stable")
    placed = np.empty(len(sizes), dtype=np.int64)
    placed[order] = np.arange(len(sizes))

    # Full ones come first and fill a bin each: no search for them.
    num_full = int(np.count_nonzero(sizes == capacity))
    bins_in_order = list(range(num_full))
    num_bins = num_full
    bins_with_space: list[list[int]] = [[] for _ in range(capacity)]
    # Bit s is set while some bin has exactly s left. The lowest set bit from `size` on is the best fit:
    # three operations on one integer instead of a tree over the bins.
    spaces = 0
    for size in sizes[order[num_full:]].tolist():
        fitting = spaces >> size
        if fitting:
            space = size + (fitting & -fitting).bit_length() - 1
            chosen = bins_with_space[space].pop()
            if not bins_with_space[space]:
                spaces ^= 1 << space
        else:
            space, chosen = capacity, num_bins
            num_bins += 1
        bins_in_order.append(chosen)
        left = space - size
        if left:
            bins_with_space[left].append(chosen)
            spaces |= 1 << left

    bins = np.empty(len(sizes), dtype=np.int64)
    bins[order] = bins_in_order
    return bins, placed


def _chunks(lengths: np.ndarray, row_len: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Documents in chunks of at most one row: (document, token_start, token_end), each [M] int64."""
    counts = -(-lengths // row_len)
    document = np.repeat(np.arange(len(lengths)), counts)
    chunk = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    token_start = chunk * row_len
    return document, token_start, np.minimum(token_start + row_len, lengths[document])
