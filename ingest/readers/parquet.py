"""Parquet files, a row group at a time, and of it a batch at a time; rows are counted from 0."""

from collections.abc import Callable, Iterator
from typing import Any

from ingest.bad import DAMAGED_PARQUET, EMPTY, MISSING_FIELD, WRONG_TYPE, Bad
from ingest.documents import Document, TextRules
from ingest.inputs import InputFile
from ingest.readers.records import Fields, Place, record_documents
from ingest.readers.streams import BLOCK_BYTES

_BATCH_ROWS = 256
"""Rows held as Python values at a time; long texts make a batch of 256 large enough to be fast."""


def read_parquet(
    file: InputFile, fields: Fields, rules: TextRules, on_read: Callable[[int], None]
) -> Iterator[Document | Bad]:
    """The documents of a Parquet file. Of a damaged row group, those before the damage.

    Args:
      on_read: receives the bytes of the file as its row groups are done.
    """
    # Half a second of import that other inputs need not pay.
    import pyarrow as pa
    from pyarrow import parquet

    try:
        reader = parquet.ParquetFile(file.path, pre_buffer=False, buffer_size=BLOCK_BYTES)
    except (pa.ArrowException, OSError) as error:
        yield Bad(DAMAGED_PARQUET, file.path, _one_line(error))
        return
    with reader:
        names = reader.schema_arrow.names
        missing = [name for name in fields.names if name not in names]
        if missing:
            yield Bad(MISSING_FIELD, file.path, f"no column {missing[0]!r}; the file has {', '.join(names[:10])}")
            return
        twice = [name for name in fields.names if names.count(name) > 1]
        if twice:
            yield Bad(WRONG_TYPE, file.path, f"{names.count(twice[0])} columns are named {twice[0]!r}")
            return
        first = 0
        for group in range(reader.num_row_groups):
            yield from _read_group(reader, group, first, file, fields, rules)
            first += reader.metadata.row_group(group).num_rows
            on_read(file.size * (group + 1) // reader.num_row_groups - file.size * group // reader.num_row_groups)
        if first == 0:
            yield Bad(EMPTY, file.path, "no row in it")


def _read_group(
    reader: Any, group: int, first: int, file: InputFile, fields: Fields, rules: TextRules
) -> Iterator[Document | Bad]:
    """Rows of row group number `group`, whose first row is row `first` of the file."""
    import pyarrow as pa

    number = first
    batches = reader.iter_batches(_BATCH_ROWS, row_groups=[group], columns=fields.names, use_threads=False)
    while True:
        try:
            batch = next(batches, None)
            columns = [] if batch is None else _columns(batch, fields)
        except (pa.ArrowException, OSError) as error:
            yield Bad(
                DAMAGED_PARQUET,
                f"{file.path}, row group {group}, from row {number}",
                f"{_one_line(error)}; the rest of the row group is left out",
            )
            return
        if batch is None:
            return
        for values in zip(*columns, strict=True):
            record = dict(zip(fields.names, values, strict=True))
            yield from record_documents(
                record, Place(file, "row", number), fields, rules, content=_content(record, fields)
            )
            number += 1


def _columns(batch: Any, fields: Fields) -> list[list[Any]]:
    return [_values(batch.column(batch.schema.get_field_index(name))) for name in fields.names]


def _values(column: Any) -> list[Any]:
    """Python values of a column; text as bytes, since Arrow does not promise that it is UTF-8."""
    import pyarrow as pa

    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return column.to_pylist()


def _content(record: dict[str, Any], fields: Fields) -> bytes | None:
    text = record.get(fields.text)
    return text if isinstance(text, bytes) else None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
