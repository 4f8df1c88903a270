"""`tokenmill rows`: which documents a training step saw, and where a document went."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foundation.errors import ConfigError
from runners.cli.options import Config, Overrides
from runners.cli.quiet import quiet_stderr

if TYPE_CHECKING:
    import numpy as np

    from components.sequence_packer.lookup import RowSegment
    from runners.local.last_outputs import LastTraining


def rows(
    config: Config,
    step: Annotated[
        int | None, typer.Option(min=1, help="The documents that the rows of this training step hold, in order.")
    ] = None,
    doc: Annotated[str | None, typer.Option(metavar="DOC_ID", help="The rows that hold this document.")] = None,
    split: Annotated[str, typer.Option(help="Split of --doc.")] = "train",
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each stretch of a document.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Whole texts instead of their beginnings.")] = False,
) -> None:
    """Show which documents were in a training step, or which rows hold a document, decoded.

    Of the last training of the run, finished or not: its rows, its tokenizer, its seed and batch size.
    """
    if (step is None) == (doc is None):
        raise ConfigError("give either --step N or --doc DOC_ID")
    from pipeline.config import load_config
    from runners.local.last_outputs import find_last_training

    with quiet_stderr():  # ML Metadata's first words
        training = find_last_training(load_config(config, overrides))
    folder = training.split_folder("train" if step is not None else split)
    segments = _of_step(training, folder, step) if step is not None else _of_document(folder, str(doc))
    decode = _decoder(training.tokenizer)
    for segment in segments:
        found = _described(folder, segment, decode)
        typer.echo(json.dumps(found, ensure_ascii=False) if as_json else _line(found, full))


def _of_step(training: "LastTraining", folder: Path, step: int) -> list["RowSegment"]:
    from components.sequence_packer.lookup import segments_of_row

    settings = training.train_config
    if step > settings["steps"]:
        raise ConfigError(f"the training has {settings['steps']} steps. Received: step={step}")
    if settings.get("input") == "stream":
        raise ConfigError("a training from a stream has no rows by number; only train.input mapped and memory have")
    return [segment for row in _rows_of_step(folder, step, settings) for segment in segments_of_row(folder, row)]


def _rows_of_step(folder: Path, step: int, settings: dict[str, Any]) -> list[int]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from foundation.rows import PackingManifest

    with quiet_stderr():
        import tensorflow as tf

        from trainer_module.rows_dataset import training_row_indices

    num_rows = PackingManifest.load(folder).num_rows
    indices = training_row_indices(tf.constant(step - 1), num_rows, settings["global_batch_size"], settings["seed"])
    numbers: list[int] = indices.numpy().tolist()
    return numbers


def _of_document(folder: Path, doc_id: str) -> list["RowSegment"]:
    from components.sequence_packer.lookup import rows_of_document

    found = rows_of_document(folder, doc_id)
    if not found:
        raise ConfigError(
            f"{folder}: no row holds the document {doc_id!r}; it may be in another split (--split), or have been "
            "dropped, which packing.json counts by reason"
        )
    return found


def _decoder(model: Path) -> Callable[["np.ndarray"], str]:
    import sentencepiece

    from foundation.special_tokens import NUM_SPECIAL_TOKENS

    with quiet_stderr():
        from trainer_module.tokenization import unescape_text

    processor = sentencepiece.SentencePieceProcessor(model_proto=model.read_bytes())

    def decode(token_ids: "np.ndarray") -> str:
        return unescape_text(processor.decode([int(token) for token in token_ids if token >= NUM_SPECIAL_TOKENS]))

    return decode


def _described(folder: Path, segment: "RowSegment", decode: Callable[["np.ndarray"], str]) -> dict[str, Any]:
    import dataclasses

    from components.sequence_packer.lookup import read_row

    token_ids, segment_ids = read_row(folder, segment.row)
    return {**dataclasses.asdict(segment), "text": decode(token_ids[segment_ids == segment.segment])}


def _line(found: dict[str, Any], full: bool) -> str:
    text = found["text"] if full else found["text"][:60]
    tokens = f"tokens {found['token_start']:>7,} to {found['token_end'] - 1:>7,}"
    return f"row {found['row']:>7,}  {tokens} of {found['doc_id']}  ({found['source']})  {text!r}"
