"""The artifact type of packed rows."""

import os

from tfx.types import artifact


class PackedRows(artifact.Artifact):
    """Packed rows of every split: `<uri>/Split-<name>/rows-*.tfrecord`, `index-*.parquet`, `packing.json`.

    Custom properties (Kubeflow keeps no others, hence no PROPERTIES):

    - `split_names`: JSON list, as in Examples;
    - `seq_len`, `dtype`, `policy`, `tokenizer_sha256`;
    - for every split S: `S_rows`, `S_tokens`, `S_pad_tokens`, `S_cut_documents`, `S_lost_targets`, and the ledger,
      `S_documents_in`, `S_documents_packed`, ..., `S_bytes_dropped`.
    """

    TYPE_NAME = "components.sequence_packer.artifact.PackedRows"


def split_folder(uri: str, split: str) -> str:
    """Where the rows of `split` lie in the artifact at `uri`: the folder naming of TFX's Examples."""
    return os.path.join(uri, f"Split-{split}")
