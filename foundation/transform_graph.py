"""The transform graph as its consumers see it: where the tokenizer is."""

import json
from pathlib import Path

from foundation.errors import CorpusError

TOKENIZER_ASSET = "spm"
"""Name, among the transform graph's assets, of the serialized SentencePiece model."""


def tokenizer_path(transform_graph: str | Path) -> Path:
    """File of the SentencePiece model in Transform's output.

    Transform may rename an asset's file; its metadata says what it is called.

    Raises:
      CorpusError: there is no such file.
    """
    graph = Path(transform_graph)
    name = TOKENIZER_ASSET
    names = graph / "transformed_metadata" / "asset_map"
    if names.exists():
        name = json.loads(names.read_text(encoding="utf-8")).get(TOKENIZER_ASSET, name)
    path = graph / "transform_fn" / "assets" / name
    if not path.is_file():
        raise CorpusError(f"{path}: the transform graph has no tokenizer; run the pipeline again from Transform")
    return path
