"""What the export is asked and what it has to answer, sampled from the evaluation documents and the trainer's rows."""

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from components.sequence_packer.lookup import read_row, rows_of_document
from components.sequence_packer.reading import example_files
from foundation.documents import DOC_ID, TEXT
from foundation.errors import CorpusError
from foundation.rows import PackingManifest
from foundation.special_tokens import EOS_ID
from foundation.tfrecord import read_records

_LOOKED_AT = 500
"""Documents from which the sample is drawn: the first of the split, whose order is by hash already."""

_MOST_BYTES = 16_384
"""Longer documents would cost seconds each and prove nothing that two windows do not."""


class Settings(NamedTuple):
    """Limits of the checks; see `pipeline.config.ExportConfig`."""

    num_documents: int
    tolerance: float
    max_answer_s: float
    max_load_mib: float | None


def make_cases(
    model: Path, reference: Path, examples: Path, rows: Path, hidden_packages: list[str], settings: Settings
) -> dict[str, Any]:
    """The input of `checks.py`.

    Args:
      model: the SavedModel.
      reference: `trainer_module.reference`'s file.
      examples: the evaluation documents, a folder of TFRecord files.
      rows: the packed rows of the same documents.
      hidden_packages: that the process must not import.

    Raises:
      CorpusError: no document can be found in the rows; a file is damaged.
    """
    sampled = (_case(doc_id, text, rows) for doc_id, text in _sample(examples))
    documents = list(itertools.islice(filter(None, sampled), settings.num_documents))
    if not documents:
        raise CorpusError(
            f"{examples}: none of its documents is in the rows {rows}, so the export cannot be compared; run the "
            "pipeline again from Transform, or raise corpus.eval_buckets"
        )
    return {
        "model": str(model),
        "reference": str(reference),
        "tokenizer_sha256": PackingManifest.load(rows).tokenizer_sha256,
        "hidden_packages": hidden_packages,
        "documents": documents,
        "tolerance": settings.tolerance,
        "max_answer_s": settings.max_answer_s,
        "max_load_mib": settings.max_load_mib,
    }


def _sample(examples: Path) -> list[tuple[str, str]]:
    """Id and text of documents in the order of a hash of their ids, short ones first: the same for the same split."""
    found = itertools.islice(_documents(examples), _LOOKED_AT)
    return sorted(
        found, key=lambda document: (len(document[1]) > _MOST_BYTES, hashlib.sha256(document[0].encode()).digest())
    )


def _documents(examples: Path) -> Iterator[tuple[str, str]]:
    from tensorflow.core.example.example_pb2 import Example

    for path in example_files(examples):
        for record in read_records(path):
            features = Example.FromString(record).features.feature
            try:
                text = features[TEXT].bytes_list.value[0].decode()
            except (UnicodeDecodeError, IndexError):
                continue  # the gate has let it pass; such a text does not come back as it was
            yield features[DOC_ID].bytes_list.value[0].decode(), text


def _case(doc_id: str, text: str, rows: Path) -> dict[str, Any] | None:
    """A document and its ids as they lie in the rows; None if the packer did not take all of it."""
    stretches, covered, last = [], 0, None
    for segment in rows_of_document(rows, doc_id):
        if segment.token_start != covered:
            return None
        token_ids, segment_ids = read_row(rows, segment.row)
        ids = token_ids[segment_ids == segment.segment].tolist()
        stretches.append({"start": segment.token_start, "token_ids": ids})
        covered, last = segment.token_end, ids[-1]
    if last != EOS_ID:
        return None
    return {"doc_id": doc_id, "text": text, "num_tokens": covered, "stretches": stretches}
