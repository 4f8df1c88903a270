"""Line endings are kept or made LF, pieces are numbered, and what is wrong is named by its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.bad import Bad
from ingest.documents import Document, TextRules, documents_of

KEEP = TextRules(max_document_bytes=16, line_endings="keep")


def of_file(text: bytes, rules: TextRules = KEEP) -> list[Document | Bad]:
    return list(documents_of([text], "books/a.txt", "books", "data/books/a.txt", rules, lines_matter=True))


def test_a_short_text_is_one_document_with_its_bytes_as_they_are() -> None:
    assert of_file(b"\tCR\r\nLF\n ") == [Document("books/a.txt", b"\tCR\r\nLF\n ", "books", "data/books/a.txt")]


def test_a_long_text_is_numbered_pieces_that_know_their_line() -> None:
    assert of_file(b"first words\n\nsecond words\nthird words\n") == [
        Document("books/a.txt#0001", b"first words\n\n", "books", "data/books/a.txt"),
        Document("books/a.txt#0002", b"second words\n", "books", "data/books/a.txt, line 3"),
        Document("books/a.txt#0003", b"third words\n", "books", "data/books/a.txt, line 4"),
    ]


@given(blocks=st.lists(st.text(alphabet="a\r\n", max_size=3).map(str.encode), max_size=20))
def test_lf_replaces_crlf_wherever_the_blocks_are_split(blocks: list[bytes]) -> None:
    rules = TextRules(max_document_bytes=1000, line_endings="lf")
    documents = list(documents_of(blocks, "id", "s", "w", rules, lines_matter=True))
    assert b"".join(item.text for item in documents if isinstance(item, Document)) == b"".join(blocks).replace(
        b"\r\n", b"\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "data/books/a.txt: empty text"),
        (b"ok\nab\0c", "data/books/a.txt, line 2, byte 3 of it: NUL character (byte 0x00)"),
        (b"ok\n\xff", "data/books/a.txt, line 2, byte 1 of it: invalid UTF-8 (byte 0xff: invalid start byte)"),
        (b"\xc3(\0", "data/books/a.txt, line 1, byte 1 of it: invalid UTF-8 (byte 0xc3: invalid continuation byte)"),
        (b"\0\xff", "data/books/a.txt, line 1, byte 1 of it: NUL character (byte 0x00)"),
        (
            b"\xed\xa0\x80",
            "data/books/a.txt, line 1, byte 1 of it: invalid UTF-8 (byte 0xed: invalid continuation byte)",
        ),
        (b"a\xe2\x82", "data/books/a.txt, line 1, byte 2 of it: invalid UTF-8 (byte 0xe2: unexpected end of data)"),
    ],
)
def test_what_is_no_document_is_named(text: bytes, expected: str) -> None:
    assert [str(item) for item in of_file(text)] == [expected]


def test_a_bad_piece_costs_no_other_and_keeps_its_number() -> None:
    good, bad, last = of_file(b"first words\n\nsecond w\0rds\nthird words\n")
    assert isinstance(good, Document) and isinstance(last, Document) and isinstance(bad, Bad)
    assert (good.doc_id, last.doc_id) == ("books/a.txt#0001", "books/a.txt#0003")
    assert str(bad) == "data/books/a.txt, line 3, byte 9 of it: NUL character (byte 0x00)"
    assert bad.content == b"second w\0rds\n"
