"""What Transform wrote, as column batches: gzipped TFRecord files of tf.Example."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.sequence_packer.documents import DocumentBatch
from foundation.documents import DOC_ID, NUM_BYTES, SOURCE, TOKEN_IDS
from foundation.errors import CorpusError
from foundation.tfrecord import read_records

if TYPE_CHECKING:
    from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

_BATCH_BYTES = 4 << 20
"""Serialized examples decoded at a time: large enough for vector speed, small beside a shard."""

_BATCH_DOCUMENTS = 4096


def example_files(folder: str | Path) -> list[str]:
    """The record files of a split, sorted; markers such as `_SUCCESS` and hidden files are none.

    Raises:
      CorpusError: there are none.
    """
    path = Path(folder)
    files = sorted(str(file) for file in path.glob("*") if file.is_file() and file.name[0] not in "._")
    if not files:
        raise CorpusError(f"{path} holds no example files; run Transform for this split, or name another split")
    return files


def read_documents(path: str) -> Iterator[DocumentBatch]:
    """The documents of one file.

    Raises:
      CorpusError: damaged file, or an example that is no tokenized document; names file and record.
    """
    decoder = _decoder()
    records: list[bytes] = []
    size, first = 0, 0
    for record in read_records(path):
        records.append(record)
        size += len(record)
        if size >= _BATCH_BYTES or len(records) >= _BATCH_DOCUMENTS:
            yield _decode(decoder, records, path, first)
            first += len(records)
            records, size = [], 0
    if records:
        yield _decode(decoder, records, path, first)


def _decoder() -> "ExamplesToRecordBatchDecoder":
    # The decoder of tfx_bsl: C++, straight into columns, and no import of TensorFlow.
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

    schema = schema_pb2.Schema()
    for name, kind in (
        (TOKEN_IDS, schema_pb2.INT),
        (NUM_BYTES, schema_pb2.INT),
        (DOC_ID, schema_pb2.BYTES),
        (SOURCE, schema_pb2.BYTES),
    ):
        schema.feature.add(name=name, type=kind)
    return ExamplesToRecordBatchDecoder(schema.SerializeToString())


def _decode(decoder: "ExamplesToRecordBatchDecoder", records: list[bytes], path: str, first: int) -> DocumentBatch:
    where = f"{path}, records {first} to {first + len(records) - 1}"
    try:
        columns = decoder.DecodeBatch(records)
    except RuntimeError as error:
        raise CorpusError(f"{where}: not tf.Examples of tokenized documents ({error}); check preprocessing") from error
    token_ids = columns.column(columns.schema.get_field_index(TOKEN_IDS))
    lengths = pc.fill_null(pc.list_value_length(token_ids), 0)
    return DocumentBatch.build(
        doc_ids=_texts(columns, DOC_ID, path, first),
        sources=_texts(columns, SOURCE, path, first),
        num_bytes=_single_values(columns, NUM_BYTES, path, first).to_numpy(zero_copy_only=False),
        lengths=lengths.to_numpy(zero_copy_only=False),
        token_ids=token_ids.flatten().to_numpy(zero_copy_only=False),
    )


def _single_values(columns: pa.RecordBatch, name: str, path: str, first: int) -> pa.Array:
    """The feature's values, one per record."""
    column = columns.column(columns.schema.get_field_index(name))
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(counts != 1)
    if len(wrong):
        raise CorpusError(
            f"{path}, record {first + int(wrong[0])}: feature {name!r} must have exactly one value; "
            f"check preprocessing. Received: {int(counts[wrong[0]])} values"
        )
    return column.flatten()


def _texts(columns: pa.RecordBatch, name: str, path: str, first: int) -> list[str]:
    values = _single_values(columns, name, path, first).to_pylist()
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError:
        wrong = next(i for i, value in enumerate(values) if value.decode(errors="replace").encode() != value)
        raise CorpusError(
            f"{path}, record {first + wrong}: feature {name!r} is not valid UTF-8; give the document another. "
            f"Received: {values[wrong]!r}"
        ) from None
