"""The executor on real files, in a real Beam pipeline: what is packed, that it is always the same, and how it fails."""

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest
from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
from tfx.types import artifact_utils, standard_artifacts

from components.sequence_packer import beam_packing, lookup
from components.sequence_packer.artifact import PackedRows
from components.sequence_packer.documents import DocumentBatch
from components.sequence_packer.executor import Executor, read_tokenizer_sha256
from components.sequence_packer.packing import Packing, pack_documents
from foundation import events
from foundation.errors import CorpusError, HostError
from foundation.rows import PackingManifest, RowFormat
from tests.components.sequence_packer.corpora import Tokens, random_tokens, read_payloads, write_examples

# A container image, which a local runner does not use, keeps TFX from building a package of itself for the workers.
LOCAL = ("--runner=DirectRunner", "--sdk_container_image=unused")
IN_MEMORY = (*LOCAL, "--direct_running_mode=in_memory")
TWO_THREADS = (*LOCAL, "--direct_running_mode=multi_threading", "--direct_num_workers=2")

TRAIN = {**random_tokens(count=60, seed=11), "empty": []}
EVAL = {f"eval-{doc_id}": ids for doc_id, ids in random_tokens(count=8, seed=12).items()}
SOURCES = {doc_id: "code" if number % 3 else "web" for number, doc_id in enumerate(TRAIN)}


def write_corpus(root: Path, splits: dict[str, Tokens], num_files: int = 2) -> None:
    """Examples of every split in `num_files` files, and a transform graph with a tokenizer."""
    for split, tokens in splits.items():
        documents = list(tokens.items())
        for number in range(num_files):
            name = f"transformed_examples-{number:05d}-of-{num_files:05d}.gz"
            write_examples(root / "examples" / f"Split-{split}" / name, dict(documents[number::num_files]), SOURCES)
    assets = root / "graph" / "transform_fn" / "assets"
    assets.mkdir(parents=True, exist_ok=True)
    (assets / "spm").write_bytes(b"a model")


def run(
    root: Path, splits: tuple[str, ...] = ("train", "eval"), beam_args: tuple[str, ...] = IN_MEMORY, **changes: object
) -> PackedRows:
    examples = standard_artifacts.Examples()
    examples.uri = str(root / "examples")
    examples.split_names = artifact_utils.encode_split_names(list(splits))
    graph = standard_artifacts.TransformGraph()
    graph.uri = str(root / "graph")
    rows = PackedRows()
    rows.uri = str(root / "rows")
    context = BaseBeamExecutor.Context(beam_pipeline_args=list(beam_args), tmp_dir=str(root / "tmp"), unique_id="1")
    properties = {"seq_len": 15, "vocab_size": 500, "policy": "concat", "tokens_per_shard": 400, "code_hash": "x"}
    Executor(context).Do(
        {"examples": [examples], "transform_graph": [graph]}, {"rows": [rows]}, {**properties, **changes}
    )
    return rows


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PackedRows]:
    root = tmp_path_factory.mktemp("packed")
    write_corpus(root, {"train": TRAIN, "eval": EVAL})
    return root, run(root)


@pytest.mark.parametrize(("split", "tokens"), [("train", TRAIN), ("eval", EVAL)])
def test_every_document_is_in_the_rows(packed: tuple[Path, PackedRows], split: str, tokens: Tokens) -> None:
    """Read back through the public contracts: manifest, framing, index."""
    folder = packed[0] / "rows" / f"Split-{split}"
    manifest = PackingManifest.load(folder)
    payloads = [payload for name in manifest.shard_names for payload in read_payloads(folder / name)]
    assert len(payloads) == manifest.num_rows
    token_ids, segment_ids = manifest.row_format.decode(b"".join(payloads))
    for doc_id, ids in tokens.items():
        segments = lookup.rows_of_document(folder, doc_id)
        parts = [token_ids[s.row][segment_ids[s.row] == s.segment] for s in segments]
        assert [token for part in parts for token in part.tolist()] == list(ids)
    assert np.count_nonzero(segment_ids) == sum(len(ids) for ids in tokens.values())


def test_shards_hold_about_the_tokens_asked_for(packed: tuple[Path, PackedRows]) -> None:
    manifest = PackingManifest.load(packed[0] / "rows" / "Split-train")
    num_tokens = sum(len(ids) for ids in TRAIN.values())
    assert len(manifest.shard_rows) == -(-num_tokens // 400) > 3


def test_manifest_and_artifact_tell_the_same(packed: tuple[Path, PackedRows]) -> None:
    root, rows = packed
    manifest = PackingManifest.load(root / "rows" / "Split-train")
    num_tokens = sum(len(ids) for ids in TRAIN.values())
    assert manifest.ledger.documents_in == 61
    assert manifest.ledger.documents_packed == 60
    assert manifest.ledger.dropped_by_reason == {"no_tokens": 1}
    assert manifest.ledger.tokens_packed == num_tokens
    assert manifest.ledger.bytes_packed == 3 * num_tokens
    assert manifest.tokens_by_source == {
        source: sum(len(ids) for doc_id, ids in TRAIN.items() if SOURCES[doc_id] == source)
        for source in ("code", "web")
    }
    assert manifest.tokenizer_sha256 == hashlib.sha256(b"a model").hexdigest()
    assert manifest.num_pad_tokens == manifest.num_rows * 16 - num_tokens

    assert json.loads(rows.get_string_custom_property("split_names")) == ["train", "eval"]
    assert rows.get_string_custom_property("tokenizer_sha256") == manifest.tokenizer_sha256
    assert rows.get_string_custom_property("dtype") == "uint16"
    assert rows.get_int_custom_property("seq_len") == 15
    assert rows.get_int_custom_property("train_rows") == manifest.num_rows
    assert rows.get_int_custom_property("train_tokens_in") == num_tokens
    assert rows.get_int_custom_property("train_tokens_packed") == num_tokens
    assert rows.get_int_custom_property("train_documents_dropped") == 1
    assert rows.get_int_custom_property("train_pad_tokens") == manifest.num_pad_tokens
    assert rows.get_int_custom_property("eval_documents_packed") == 8


def test_nothing_but_finished_files_is_left(packed: tuple[Path, PackedRows]) -> None:
    names = [path.name for path in (packed[0] / "rows" / "Split-eval").iterdir()]
    assert not [name for name in names if name.startswith(".")]


@pytest.mark.parametrize("policy", ["concat", "best_fit", "pad"])
def test_same_documents_same_bytes(tmp_path: Path, policy: str) -> None:
    """Other order, other files, other bundles, threads: every file of the split is the same."""
    documents = list(TRAIN.items())
    random.Random(policy).shuffle(documents)
    write_corpus(tmp_path / "one", {"train": TRAIN}, num_files=1)
    write_corpus(tmp_path / "two", {"train": dict(documents)}, num_files=5)
    run(tmp_path / "one", ("train",), IN_MEMORY, policy=policy)
    run(tmp_path / "two", ("train",), TWO_THREADS, policy=policy)
    assert digests(tmp_path / "one" / "rows" / "Split-train") == digests(tmp_path / "two" / "rows" / "Split-train")


def test_a_vocabulary_of_65537_pieces_gets_wide_rows(tmp_path: Path) -> None:
    write_corpus(tmp_path, {"train": {"a": [7, 65_536, 8]}})
    rows = run(tmp_path, ("train",), vocab_size=65_537, seq_len=3)
    assert rows.get_string_custom_property("dtype") == "uint32"
    token_ids, segment_ids = lookup.read_row(tmp_path / "rows" / "Split-train", 0)
    assert token_ids.tolist() == [7, 65_536, 8, 0]
    assert segment_ids.tolist() == [1, 1, 1, 0]


def test_a_second_attempt_replaces_the_first(tmp_path: Path) -> None:
    write_corpus(tmp_path, {"train": EVAL})
    run(tmp_path, ("train",), tokens_per_shard=20)
    run(tmp_path, ("train",), tokens_per_shard=10_000)
    folder = tmp_path / "rows" / "Split-train"
    assert list(digests(folder)) == ["index-00000-of-00001.parquet", "packing.json", "rows-00000-of-00001.tfrecord"]


def test_a_note_tells_what_was_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(events.EVENTS_VARIABLE, str(tmp_path / "events"))
    write_corpus(tmp_path, {"train": {"a": [5] * 20, "b": [6] * 6, "c": []}})
    run(tmp_path, ("train",), policy="best_fit")
    (event,) = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert event["kind"] == "note"
    assert event["text"] == (
        "train: 2 documents, 26 tokens in 2 rows of 16 (best_fit); padding 18.75%, documents cut 50.0%; "
        "dropped 1 (1 no_tokens)"
    )


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ({}, r"split 'eval' holds no tokens \(0 documents were read\)"),
        ({"nothing": []}, r"split 'eval' holds no tokens \(1 documents were read\)"),
        ({"fine": [5], "high": [5, 500]}, "outside the vocabulary.*token_id=500, vocab_size=500, doc_id='high'"),
    ],
)
def test_bad_documents_fail_the_component(tmp_path: Path, documents: Tokens, said: str) -> None:
    write_corpus(tmp_path, {"train": EVAL, "eval": documents})
    with pytest.raises(CorpusError, match=said):
        run(tmp_path)
    assert not (tmp_path / "rows" / "Split-eval" / "packing.json").exists()


def test_a_doc_id_in_two_files_fails_the_component(tmp_path: Path) -> None:
    write_corpus(tmp_path, {"train": EVAL}, num_files=1)
    write_examples(tmp_path / "examples" / "Split-train" / "more.gz", {"eval-doc-3": [9]})
    with pytest.raises(CorpusError, match="occur more than once.*doc_id='eval-doc-3'"):
        run(tmp_path, ("train",))


def test_a_damaged_file_fails_the_component_by_name(tmp_path: Path) -> None:
    write_corpus(tmp_path, {"train": TRAIN}, num_files=2)
    path = tmp_path / "examples" / "Split-train" / "transformed_examples-00001-of-00002.gz"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CorpusError, match=r"transformed_examples-00001-of-00002.gz, record \d+"):
        run(tmp_path, ("train",))


def test_a_full_disk_is_the_hosts_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(beam_packing, "write_shard", no_space)
    write_corpus(tmp_path, {"train": EVAL})
    with pytest.raises(HostError, match="No space left on device.*free or enlarge the disk"):
        run(tmp_path, ("train",))


def test_tokens_lost_on_the_way_fail_the_component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The books are kept at both ends: a packer that writes less than it read is found out."""

    def forget_one(documents: DocumentBatch, row_format: RowFormat, policy: str) -> Packing:
        return pack_documents(documents.take(np.arange(1, len(documents))), row_format, policy)

    monkeypatch.setattr(beam_packing, "pack_documents", forget_one)
    write_corpus(tmp_path, {"train": EVAL})
    with pytest.raises(CorpusError, match="ledger does not balance: documents in 8 != packed 7"):
        run(tmp_path, ("train",), tokens_per_shard=100_000)


def test_tokenizer_asset_is_found_by_its_key(tmp_path: Path) -> None:
    """Transform may store the asset under another file name; its map says which."""
    (tmp_path / "transform_fn" / "assets").mkdir(parents=True)
    (tmp_path / "transform_fn" / "assets" / "spm_1").write_bytes(b"mapped")
    (tmp_path / "transformed_metadata").mkdir()
    (tmp_path / "transformed_metadata" / "asset_map").write_text('{"spm": "spm_1"}')
    assert read_tokenizer_sha256(str(tmp_path)) == hashlib.sha256(b"mapped").hexdigest()


def test_no_tokenizer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="assets/spm: the transform graph has no tokenizer"):
        read_tokenizer_sha256(str(tmp_path))
