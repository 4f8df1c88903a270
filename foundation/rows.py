"""The packed row: what SequencePacker writes and the trainer reads.

A row is one TFRecord record of constant length: `token_ids[L+1]` then `segment_ids[L+1]`, raw
little-endian, one dtype for both. Segment 0 is padding; documents are numbered from 1 inside a
row, in order. Inputs are `token_ids[:-1]`, targets `token_ids[1:]`; a target counts where its
segment equals that of its input and is not 0.

Constant length makes a plain TFRecord file randomly addressable: record i starts at byte
`i * record_bytes`, its payload 12 bytes later (length and its checksum), and 4 bytes of checksum
follow it.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from foundation import atomic
from foundation.errors import CorpusError
from foundation.tfrecord import FRAME_BYTES_AFTER, FRAME_BYTES_BEFORE

MANIFEST_NAME = "packing.json"
ROW_FILE_PREFIX = "rows"
"""Shards of a split are named `rows-00000-of-00004.tfrecord`."""

INDEX_FILE_PREFIX = "index"
"""The side index: `index-00000-of-00004.parquet`, one line per document of a row."""


@dataclasses.dataclass(frozen=True)
class RowFormat:
    """Shape and dtype of a row."""

    seq_len: int
    """Tokens the model sees; a row holds one more, so that every input has a target."""

    dtype: str
    """`uint16` while every id fits, else `uint32`."""

    @classmethod
    def for_vocab(cls, seq_len: int, vocab_size: int) -> "RowFormat":
        """The narrowest format whose dtype holds ids below `vocab_size` and segments up to `seq_len + 1`."""
        largest = max(vocab_size - 1, seq_len + 1)
        return cls(seq_len=seq_len, dtype="uint16" if largest <= np.iinfo(np.uint16).max else "uint32")

    @property
    def row_len(self) -> int:
        """Tokens in a row: `seq_len + 1`."""
        return self.seq_len + 1

    @property
    def payload_bytes(self) -> int:
        return 2 * self.row_len * np.dtype(self.dtype).itemsize

    @property
    def record_bytes(self) -> int:
        """Payload and TFRecord framing."""
        return FRAME_BYTES_BEFORE + self.payload_bytes + FRAME_BYTES_AFTER

    def encode(self, token_ids: np.ndarray, segment_ids: np.ndarray) -> np.ndarray:
        """Payloads of rows.

        Args:
          token_ids: [rows, seq_len + 1], any integer dtype.
          segment_ids: the same shape.

        Returns:
          [rows, payload_bytes] uint8.
        """
        dtype = np.dtype(self.dtype).newbyteorder("<")
        both = np.stack([token_ids, segment_ids], axis=1).astype(dtype)
        return both.reshape(len(token_ids), 2 * self.row_len).view(np.uint8)

    def decode(self, payloads: bytes | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse of `encode`: payloads in sequence to (token_ids, segment_ids), each [rows, seq_len + 1]."""
        dtype = np.dtype(self.dtype).newbyteorder("<")
        both = np.frombuffer(payloads, dtype=dtype).reshape(-1, 2, self.row_len)
        return both[:, 0], both[:, 1]


@dataclasses.dataclass(frozen=True)
class Ledger:
    """Where every document, token and byte went. `in = packed + dropped`, or the component fails."""

    documents_in: int = 0
    documents_packed: int = 0
    documents_dropped: int = 0
    tokens_in: int = 0
    tokens_packed: int = 0
    tokens_dropped: int = 0
    bytes_in: int = 0
    bytes_packed: int = 0
    bytes_dropped: int = 0
    dropped_by_reason: dict[str, int] = dataclasses.field(default_factory=dict)
    """Documents dropped, by reason."""

    def __add__(self, other: "Ledger") -> "Ledger":
        reasons = dict(self.dropped_by_reason)
        for reason, count in other.dropped_by_reason.items():
            reasons[reason] = reasons.get(reason, 0) + count
        sums = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in dataclasses.fields(self)
            if field.name != "dropped_by_reason"
        }
        return Ledger(**sums, dropped_by_reason=dict(sorted(reasons.items())))

    def check(self) -> None:
        """Raises CorpusError, naming the account and its remainder, if anything is missing or made up."""
        for unit in ("documents", "tokens", "bytes"):
            came, packed, dropped = (getattr(self, f"{unit}_{side}") for side in ("in", "packed", "dropped"))
            if came != packed + dropped:
                raise CorpusError(
                    f"ledger does not balance: {unit} in {came} != packed {packed} + dropped {dropped} "
                    f"(remainder {came - packed - dropped}); this is a fault of the packer, please report it"
                )
        if self.documents_dropped != sum(self.dropped_by_reason.values()):
            raise CorpusError(
                f"ledger does not balance: documents dropped {self.documents_dropped} "
                f"!= sum of reasons {self.dropped_by_reason}"
            )


@dataclasses.dataclass(frozen=True)
class PackingManifest:
    """`packing.json`, beside the shards of one split."""

    split: str
    policy: str
    row_format: RowFormat
    vocab_size: int
    tokenizer_sha256: str
    num_rows: int
    num_pad_tokens: int
    num_cut_documents: int
    """Documents that lie in more than one row."""

    tokens_by_source: dict[str, int]
    shard_rows: list[int]
    """Rows in each shard, in the order of their names. Row g of the split is counted through them."""

    ledger: Ledger
    num_lost_targets: int = 0
    """Tokens that nothing predicts because their document was cut just before them."""

    shard_sha256: list[str] = dataclasses.field(default_factory=list)
    """Of each shard's file. With it, the manifest's own hash stands for every row of the split."""

    @property
    def shard_names(self) -> list[str]:
        count = len(self.shard_rows)
        return [f"{ROW_FILE_PREFIX}-{i:05d}-of-{count:05d}.tfrecord" for i in range(count)]

    @property
    def index_names(self) -> list[str]:
        count = len(self.shard_rows)
        return [f"{INDEX_FILE_PREFIX}-{i:05d}-of-{count:05d}.parquet" for i in range(count)]

    def save(self, folder: str | Path) -> None:
        """Writes `packing.json` into `folder`."""
        text = json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False)
        atomic.write_text(Path(folder) / MANIFEST_NAME, text + "\n")

    @classmethod
    def load(cls, folder: str | Path) -> "PackingManifest":
        """Reads `packing.json` from `folder`.

        Raises:
          CorpusError: it is missing or not what `save` writes.
        """
        path = Path(folder) / MANIFEST_NAME
        try:
            fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            fields["row_format"] = RowFormat(**fields["row_format"])
            fields["ledger"] = Ledger(**fields["ledger"])
            return cls(**fields)
        except FileNotFoundError:
            raise CorpusError(f"{path} is missing: the folder holds no packed rows; run SequencePacker again") from None
        except (ValueError, TypeError, KeyError) as error:
            raise CorpusError(f"{path} is not a packing manifest ({error}); run SequencePacker again") from error
