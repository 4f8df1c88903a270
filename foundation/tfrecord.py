"""The TFRecord file, framing only: no TensorFlow needed to read one, or to write records of one length fast.

A record is its length (8 bytes), the checksum of the length (4), the payload, the checksum of the
payload (4), all little-endian; checksums are CRC-32C, masked as TensorFlow masks them.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import numpy as np

from foundation.errors import CorpusError

FRAME_BYTES_BEFORE = 12
"""Length and its checksum."""

FRAME_BYTES_AFTER = 4
"""Checksum of the payload."""

_READ_BUFFER_BYTES = 1 << 20


class DamagedPayloadError(CorpusError):
    """A payload does not match its checksum; its length does, so the stream stands at the next record."""


def masked_crc32c(data: bytes) -> int:
    """Checksum of `data` as TFRecord stores it."""
    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def frame(payloads: np.ndarray) -> np.ndarray:
    """Records of constant length, ready to be written one after another.

    Args:
      payloads: [records, payload_bytes] uint8.

    Returns:
      [records, FRAME_BYTES_BEFORE + payload_bytes + FRAME_BYTES_AFTER] uint8.
    """
    count, length = payloads.shape
    packed_length = struct.pack("<Q", length)
    header = packed_length + struct.pack("<I", masked_crc32c(packed_length))
    records = np.empty((count, FRAME_BYTES_BEFORE + length + FRAME_BYTES_AFTER), dtype=np.uint8)
    records[:, :FRAME_BYTES_BEFORE] = np.frombuffer(header, dtype=np.uint8)
    records[:, FRAME_BYTES_BEFORE:-FRAME_BYTES_AFTER] = payloads
    checksums = np.array([masked_crc32c(payload.tobytes()) for payload in payloads], dtype="<u4")
    records[:, -FRAME_BYTES_AFTER:] = checksums.view(np.uint8).reshape(count, FRAME_BYTES_AFTER)
    return records


def first_damaged(records: np.ndarray) -> int | None:
    """Number of the first record whose frame or payload is not what `frame` writes; None if all are.

    Args:
      records: [records, FRAME_BYTES_BEFORE + payload_bytes + FRAME_BYTES_AFTER] uint8, contiguous.
    """
    if len(records) == 0:
        return None
    payloads = records[:, FRAME_BYTES_BEFORE:-FRAME_BYTES_AFTER]
    length = struct.pack("<Q", payloads.shape[1])
    header = np.frombuffer(length + struct.pack("<I", masked_crc32c(length)), dtype=np.uint8)
    checksums = np.array([masked_crc32c(payload.tobytes()) for payload in payloads], dtype="<u4")
    stored = np.ascontiguousarray(records[:, -FRAME_BYTES_AFTER:]).view("<u4")[:, 0]
    damaged = (records[:, :FRAME_BYTES_BEFORE] != header).any(axis=1) | (checksums != stored)
    return int(np.argmax(damaged)) if damaged.any() else None


def frame_one(payload: bytes) -> bytes:
    """One record of any length, ready to be written."""
    length = struct.pack("<Q", len(payload))
    checksums = masked_crc32c(length), masked_crc32c(payload)
    return b"".join((length, struct.pack("<I", checksums[0]), payload, struct.pack("<I", checksums[1])))


def read_records(path: str | Path) -> Iterator[bytes]:
    """Payloads of a TFRecord file, in order, checked; gzipped where the name ends in `.gz`.

    Raises:
      CorpusError: the file is cut short or damaged; names the file and the record (counted from 0).
    """
    number = 0
    with _open(Path(path)) as stream:
        try:
            while (payload := read_record(stream, f"{path}, record {number}")) is not None:
                yield payload
                number += 1
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CorpusError(f"{path}, record {number}: damaged gzip data ({error}); make the file again") from error


def read_record(stream: BinaryIO | gzip.GzipFile, where: str) -> bytes | None:
    """Payload of the record that begins where `stream` stands; None at the end of the file.

    Raises:
      DamagedPayloadError: it does not match its checksum; reading can go on with the next.
      CorpusError: it is cut short, or its length is damaged. Either message begins with `where`.
    """
    header = stream.read(FRAME_BYTES_BEFORE)
    if not header:
        return None
    if len(header) < FRAME_BYTES_BEFORE:
        raise CorpusError(f"{where}: the file ends inside a record's header; make the file again")
    length, length_checksum = struct.unpack("<QI", header)
    if masked_crc32c(header[:8]) != length_checksum:
        raise CorpusError(
            f"{where}: wrong checksum of the length, so no TFRecord or a damaged one; make the file again"
        )
    body = stream.read(length + FRAME_BYTES_AFTER)
    if len(body) < length + FRAME_BYTES_AFTER:
        raise CorpusError(
            f"{where}: the file ends after {len(body)} of {length + FRAME_BYTES_AFTER} bytes; make the file again"
        )
    payload = body[:length]
    if masked_crc32c(payload) != int.from_bytes(body[length:], "little"):
        raise DamagedPayloadError(f"{where}: wrong checksum of the payload ({length} bytes); make the file again")
    return payload


def _open(path: Path) -> BinaryIO | gzip.GzipFile:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return path.open("rb", buffering=_READ_BUFFER_BYTES)
