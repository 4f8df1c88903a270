"""Pieces joined are the text, none is too long, none splits a character or a CRLF, and blocks have no say."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.cutting import cut

TEXTS = st.text(alphabet="ab  \n\n\r\té한🦜e\u0301", max_size=400).map(str.encode)


@given(text=TEXTS, max_bytes=st.integers(16, 64))
def test_pieces_joined_are_the_text_and_each_fits_and_is_utf8(text: bytes, max_bytes: int) -> None:
    pieces = list(cut([text], max_bytes))
    assert b"".join(pieces) == text
    assert all(1 <= len(piece) <= max_bytes for piece in pieces)
    for piece in pieces:
        piece.decode()
    assert not any(a.endswith(b"\r") and b.startswith(b"\n") for a, b in itertools.pairwise(pieces))


@given(text=TEXTS, max_bytes=st.integers(16, 64))
def test_all_pieces_but_the_last_are_at_least_half_full(text: bytes, max_bytes: int) -> None:
    assert all(len(piece) > max_bytes // 2 - 4 for piece in list(cut([text], max_bytes))[:-1])


@given(text=TEXTS, splits=st.lists(st.integers(0, 1200), max_size=20), max_bytes=st.integers(16, 64))
def test_blocks_have_no_say(text: bytes, splits: list[int], max_bytes: int) -> None:
    bounds = [0, *sorted(min(split, len(text)) for split in splits), len(text)]
    blocks = [text[a:b] for a, b in itertools.pairwise(bounds)]
    assert list(cut(blocks, max_bytes)) == list(cut([text], max_bytes))


@given(garbage=st.binary(max_size=300), max_bytes=st.integers(16, 64))
def test_bytes_that_are_no_utf8_lose_nothing_either(garbage: bytes, max_bytes: int) -> None:
    pieces = list(cut([garbage], max_bytes))
    assert b"".join(pieces) == garbage
    assert all(1 <= len(piece) <= max_bytes for piece in pieces)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        pytest.param(b"one two\n\nthree four\nfive", [b"one two\n\n", b"three four\nfive"], id="paragraph before line"),
        pytest.param(b"one two\r\n\r\nthree four", [b"one two\r\n\r\n", b"three four"], id="paragraph with CRLF"),
        pytest.param(b"one two three\nfour five", [b"one two three\n", b"four five"], id="line before space"),
        pytest.param(
            b"a\n\nb two three four five", [b"a\n\nb two three ", b"four five"], id="not after a lone heading"
        ),
        pytest.param("한국어문장입니다".encode(), ["한국어문장".encode(), "입니다".encode()], id="between characters"),
        pytest.param(b"123456789012345\r\n", [b"123456789012345", b"\r\n"], id="before a CRLF that does not fit"),
        pytest.param(b"1234567890123456", [b"1234567890123456"], id="exactly full"),
        pytest.param(b"", [], id="empty"),
    ],
)
def test_where_it_cuts(text: bytes, pieces: list[bytes]) -> None:
    assert list(cut([text], 16)) == pieces
