"""Cutting long texts: at a paragraph if there is one, else a line, else a space, else between two characters.

Works on bytes, as they come, so a text larger than memory is cut with two pieces' worth of it in
memory, and where it is cut depends on the text alone, not on the blocks in which it was read.
"""

from collections.abc import Iterable, Iterator

_PARAGRAPH_ENDS = (b"\n\n", b"\n\r\n")
"""A blank line, with either line ending. What follows it begins a paragraph."""

_MAX_CONTINUATION_BYTES = 3
"""Of a UTF-8 character."""


def cut(blocks: Iterable[bytes], max_bytes: int) -> Iterator[bytes]:
    """Pieces of a text; joined they are the text again.

    Args:
      blocks: the text (UTF-8, or bytes that wanted to be), split anywhere.
      max_bytes: longest piece; at least 4, so that any character fits.

    Yields:
      Pieces of 1 to `max_bytes` bytes. All but the last are longer than `max_bytes // 2` (less the 3 bytes
      that a character may hang over). No piece ends inside a character, or between CR and LF.
    """
    held = bytearray()
    for block in blocks:
        held += block
        # One byte beyond the piece tells whether its end splits a character or a CRLF.
        start = 0
        while len(held) - start > max_bytes:
            end = _cut_position(held, start, max_bytes)
            yield bytes(held[start:end])
            start = end
        if start:
            del held[:start]
    if held:
        yield bytes(held)


def _cut_position(text: bytearray, start: int, max_bytes: int) -> int:
    """Where the piece that begins at `start` ends; `text` goes on beyond `start + max_bytes`.

    The larger unit wins as long as it leaves at least half a piece: a lone heading is no piece.
    """
    end = start + max_bytes
    least = start + max_bytes // 2
    paragraph = max(_end_of_last(text, mark, least, end) for mark in _PARAGRAPH_ENDS)
    for position in (paragraph, _end_of_last(text, b"\n", least, end), _end_of_last(text, b" ", least, end)):
        if position > least:
            return position
    return _character_boundary(text, start, end)


def _end_of_last(text: bytearray, mark: bytes, low: int, high: int) -> int:
    """Position after the last `mark` in text[low:high], -1 if there is none."""
    found = text.rfind(mark, low, high)
    return found + len(mark) if found >= 0 else -1


def _character_boundary(text: bytearray, start: int, end: int) -> int:
    for position in range(end, max(start, end - _MAX_CONTINUATION_BYTES - 1), -1):
        if text[position] & 0xC0 != 0x80:
            splits_crlf = text[position] == 0x0A and text[position - 1] == 0x0D
            return position - 1 if splits_crlf and position - 1 > start else position
    return end  # More continuation bytes than a character has: no UTF-8, to be refused as such.
