"""TFRecord files of tf.Example; records are counted from 0."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from foundation.errors import CorpusError
from foundation.tfrecord import DamagedPayloadError, read_record
from ingest.bad import DAMAGED_COMPRESSION, DAMAGED_RECORD, EMPTY, NOT_AN_EXAMPLE, WRONG_TYPE, Bad
from ingest.documents import Document, TextRules
from ingest.examples import NotAnExampleError, decode
from ingest.inputs import InputFile
from ingest.readers.records import Fields, Place, record_documents
from ingest.readers.streams import DamagedStreamError


def read_tfrecord(stream: BinaryIO, file: InputFile, fields: Fields, rules: TextRules) -> Iterator[Document | Bad]:
    """The documents of a TFRecord file.

    After a payload with a wrong checksum the next record is read; after damage to a record's length
    nothing can be: there is no way to know where the next one begins.
    """
    number = -1
    while True:
        number += 1
        place = Place(file, "record", number)
        try:
            payload = read_record(stream, str(place))
        except DamagedPayloadError as error:
            yield Bad(DAMAGED_RECORD, str(place), _cause(error, place))
            continue
        except CorpusError as error:
            yield Bad(DAMAGED_RECORD, str(place), f"{_cause(error, place)}; the rest is left out")
            return
        except DamagedStreamError as error:
            yield Bad(DAMAGED_COMPRESSION, str(place), f"{error}; the rest is left out")
            return
        if payload is None:
            if number == 0:
                yield Bad(EMPTY, file.path, "no record in it")
            return
        yield from _documents(payload, place, fields, rules)


def _documents(payload: bytes, place: Place, fields: Fields, rules: TextRules) -> Iterator[Document | Bad]:
    try:
        features = decode(payload)
    except NotAnExampleError as error:
        yield Bad(NOT_AN_EXAMPLE, str(place), str(error), payload)
        return
    record: dict[str, Any] = {}
    for name, values in features.items():
        if len(values) > 1 and name in fields.names:
            yield Bad(WRONG_TYPE, str(place), f"feature {name!r} must have one value and has {len(values)}", payload)
            return
        record[name] = values[0] if values else None
    yield from record_documents(record, place, fields, rules, content=payload)


def _cause(error: CorpusError, place: Place) -> str:
    return str(error).removeprefix(f"{place}: ")
