"""Text and source code: one file is one document, or several if it is long."""

from collections.abc import Iterator
from io import BufferedReader

from ingest.bad import DAMAGED_COMPRESSION, Bad
from ingest.documents import Document, TextRules, documents_of
from ingest.inputs import InputFile
from ingest.readers.streams import DamagedStreamError, blocks_of


def read_text(stream: BufferedReader, file: InputFile, rules: TextRules) -> Iterator[Document | Bad]:
    """The documents of a text file. Of a damaged compressed one, the pieces before the damage."""
    documents = documents_of(blocks_of(stream), file.name, file.source, file.path, rules, lines_matter=True)
    try:
        yield from documents
    except DamagedStreamError as error:
        yield Bad(DAMAGED_COMPRESSION, file.path, f"{error}; what follows the last whole piece is left out")
