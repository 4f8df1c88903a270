"""Input files as streams: hashed as they are read, counted for the progress bar, decompressed piece by piece."""

import contextlib
import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterator

BLOCK_BYTES = 1 << 20
"""Read at a time: large enough that a system call costs nothing, small beside everything else."""

_ZSTD_READ_BYTES = 1 << 10
"""Compressed bytes given to the decompressor at a time; what comes out of them is held in memory.

A block of 128 KiB of one byte takes 4 bytes, so that is 32 MiB at most.
"""

_ZSTD_MAX_WINDOW_BYTES = 1 << 31
"""`zstd --long=31`, the largest that the tool makes."""


class DamagedStreamError(ValueError):
    """Compressed data that is cut short, or is none."""


class CountedFile(io.RawIOBase):
    """A file that knows the hash of what was read from it and tells how far it is.

    `sha256` covers the bytes up to the furthest read, so it is that of the file only once `drain` was called.
    """

    def __init__(self, path: str, on_read: Callable[[int], None]):
        super().__init__()
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by close()
        self._on_read = on_read
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override] # typeshed: any Buffer
        count = self._file.readinto(buffer) or 0
        if count:
            self._digest.update(memoryview(buffer)[:count])
            self._on_read(count)
        return count

    def drain(self) -> None:
        """Reads to the end, so that the hash is that of the file."""
        buffer = bytearray(BLOCK_BYTES)
        while self.readinto(buffer):
            pass

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def stat(self) -> os.stat_result:
        """Size and time of the file as it is now."""
        return os.fstat(self._file.fileno())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@contextlib.contextmanager
def decompressed(file: CountedFile, path: str) -> Iterator[io.BufferedReader]:
    """`file` as a buffered stream of what is in it, by the ending of its name.

    Reading raises DamagedStreamError where compressed data is cut short or damaged. `file` stays open.
    """
    ending = os.path.splitext(path)[1].lower()
    raw: io.RawIOBase = file
    if ending == ".gz":
        raw = _GzipStream(file)
    elif ending == ".zst":
        raw = _ZstdStream(file)
    stream: io.BufferedReader = io.BufferedReader(raw, BLOCK_BYTES)
    try:
        yield stream
    finally:
        # A buffered reader closes what it reads when it is collected, unless they are parted.
        stream.detach()
        if raw is not file:
            raw.close()


def blocks_of(stream: io.BufferedReader) -> Iterator[bytes]:
    """Everything in `stream`, in blocks; before an exception, all that came before the damage."""
    while block := stream.read1(BLOCK_BYTES):
        yield block


class _GzipStream(io.RawIOBase):
    """gzip, of one or more members."""

    def __init__(self, file: CountedFile):
        super().__init__()
        self._compressed = io.BufferedReader(file, BLOCK_BYTES)
        self._file = gzip.GzipFile(fileobj=self._compressed, mode="rb")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override] # typeshed: any Buffer
        try:
            # read1, since readinto fills the whole buffer or, at damage, throws away what it has.
            block = self._file.read1(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DamagedStreamError(str(error)) from error
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
            self._compressed.detach()
        super().close()


class _ZstdStream(io.RawIOBase):
    """Zstandard, of one or more frames.

    The library's own stream reader ends quietly where a file is cut short; the object below it knows.
    """

    def __init__(self, file: CountedFile):
        super().__init__()
        import zstandard

        self._compressed = io.BufferedReader(file, BLOCK_BYTES)
        self._error = zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
        self._frame = self._decompressor.decompressobj()
        self._frame_begun = False
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override] # typeshed: any Buffer
        while not self._pending:
            compressed = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame = self._decompressor.decompressobj()
                self._frame_begun = False
            compressed = compressed or self._compressed.read(_ZSTD_READ_BYTES)
            if not compressed:
                if self._frame_begun:
                    raise DamagedStreamError("the file ends inside a Zstandard frame")
                return 0
            self._frame_begun = True
            try:
                self._pending = memoryview(self._frame.decompress(compressed))
            except self._error as error:
                raise DamagedStreamError(str(error)) from error
        count = min(len(buffer), len(self._pending))
        buffer[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            self._compressed.detach()
        super().close()
