"""What SequencePacker does when it runs."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from absl import logging
from tfx import types
from tfx.dsl.components.base import base_beam_executor
from tfx.types import artifact_utils

from components.sequence_packer import beam_packing, shards
from components.sequence_packer.artifact import split_folder
from components.sequence_packer.reading import example_files
from foundation import atomic, events
from foundation.errors import CorpusError
from foundation.rows import Ledger, PackingManifest, RowFormat
from foundation.transform_graph import tokenizer_path

EXAMPLES_KEY = "examples"
TRANSFORM_GRAPH_KEY = "transform_graph"
ROWS_KEY = "rows"


class Executor(base_beam_executor.BaseBeamExecutor):
    """Packs every split of the examples."""

    def Do(
        self,
        input_dict: dict[str, list[types.Artifact]],
        output_dict: dict[str, list[types.Artifact]],
        exec_properties: dict[str, Any],
    ) -> None:
        """See `SequencePacker` for inputs, outputs and parameters.

        Raises:
          CorpusError: an empty split, a doc_id twice, a token id outside the vocabulary, damaged files,
            a ledger that does not balance.
          ConfigError: unknown policy.
          HostError: the disk.
          ModelError: the transform graph has no tokenizer.
        """
        self._log_startup(input_dict, output_dict, exec_properties)
        examples = artifact_utils.get_single_instance(input_dict[EXAMPLES_KEY])
        rows = artifact_utils.get_single_instance(output_dict[ROWS_KEY])
        splits = artifact_utils.decode_split_names(examples.split_names)
        if not splits:
            raise CorpusError(
                f"{examples.uri} names no splits; the packer needs at least one. Received: split_names=[]"
            )
        row_format = RowFormat.for_vocab(int(exec_properties["seq_len"]), int(exec_properties["vocab_size"]))
        tokenizer_sha256 = read_tokenizer_sha256(artifact_utils.get_single_uri(input_dict[TRANSFORM_GRAPH_KEY]))

        with self._make_beam_pipeline() as pipeline:
            for split in splits:
                folder = split_folder(rows.uri, split)
                shards.prepare_folder(Path(folder))
                description = PackingManifest(
                    split=split,
                    policy=exec_properties["policy"],
                    row_format=row_format,
                    vocab_size=int(exec_properties["vocab_size"]),
                    tokenizer_sha256=tokenizer_sha256,
                    num_rows=0,
                    num_pad_tokens=0,
                    num_cut_documents=0,
                    tokens_by_source={},
                    shard_rows=[],
                    ledger=Ledger(),
                )
                _ = pipeline | f"PackSplit[{split}]" >> beam_packing.PackSplit(
                    files=example_files(artifact_utils.get_split_uri([examples], split)),
                    folder=folder,
                    tokens_per_shard=int(exec_properties["tokens_per_shard"]),
                    description=description,
                )

        manifests = [beam_packing.load_outcome(split_folder(rows.uri, split)) for split in splits]
        for manifest in manifests:
            shards.remove_files(Path(split_folder(rows.uri, manifest.split)), atomic.STAGING_PREFIX)
            line = summary(manifest)
            logging.info(line)
            events.emit("note", component="SequencePacker", text=line)
        _describe(rows, manifests)


def read_tokenizer_sha256(transform_graph_uri: str) -> str:
    """SHA-256 of the SentencePiece model inside a transform graph.

    Raises:
      CorpusError: it is not there.
    """
    return hashlib.sha256(tokenizer_path(transform_graph_uri).read_bytes()).hexdigest()


def summary(manifest: PackingManifest) -> str:
    """One line for people."""
    ledger = manifest.ledger
    padding = manifest.num_pad_tokens / (manifest.num_rows * manifest.row_format.row_len)
    cut = manifest.num_cut_documents / ledger.documents_packed
    line = (
        f"{manifest.split}: {ledger.documents_packed:,} documents, {ledger.tokens_packed:,} tokens in "
        f"{manifest.num_rows:,} rows of {manifest.row_format.row_len} ({manifest.policy}); "
        f"padding {padding:.2%}, documents cut {cut:.1%}"
    )
    if ledger.documents_dropped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in ledger.dropped_by_reason.items())
        line += f"; dropped {ledger.documents_dropped:,} ({reasons})"
    return line


def _describe(rows: types.Artifact, manifests: list[PackingManifest]) -> None:
    first = manifests[0]
    rows.set_string_custom_property(
        "split_names", artifact_utils.encode_split_names([manifest.split for manifest in manifests])
    )
    rows.set_int_custom_property("seq_len", first.row_format.seq_len)
    rows.set_string_custom_property("dtype", first.row_format.dtype)
    rows.set_string_custom_property("policy", first.policy)
    rows.set_string_custom_property("tokenizer_sha256", first.tokenizer_sha256)
    for manifest in manifests:
        counts = {
            "rows": manifest.num_rows,
            "tokens": manifest.ledger.tokens_packed,
            "pad_tokens": manifest.num_pad_tokens,
            "cut_documents": manifest.num_cut_documents,
            "lost_targets": manifest.num_lost_targets,
        }
        ledger = dataclasses.asdict(manifest.ledger)
        rows.set_string_custom_property(
            f"{manifest.split}_dropped_by_reason", json.dumps(ledger.pop("dropped_by_reason"))
        )
        for name, count in {**counts, **ledger}.items():
            rows.set_int_custom_property(f"{manifest.split}_{name}", count)
