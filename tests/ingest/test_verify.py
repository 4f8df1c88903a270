"""A span whose files changed after the ingest is refused, and the file is named."""

import json

import pytest

from foundation.errors import CorpusError
from ingest.options import IngestOptions
from ingest.run import run_ingest
from ingest.verify import check_shards


@pytest.fixture
def corpus(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(20):
        (texts / f"{number}.txt").write_text(f"text number {number}\n" * 100)
    run_ingest(IngestOptions(inputs=[str(texts)], out=str(tmp_path / "out"), shard_bytes=10_000))
    return tmp_path / "out"


def shards_of(corpus):
    found = sorted((corpus / "span-1").glob("documents-*"))
    assert len(found) > 2
    return found


def test_a_whole_span_passes(corpus):
    (corpus / "span-1" / "_SUCCESS").touch()  # what other tools leave is none of our business
    check_shards(corpus, None)
    check_shards(corpus, 1, contents=True)


def test_a_corpus_of_others_passes(tmp_path):
    check_shards(tmp_path / "none", None)
    (tmp_path / "span-3").mkdir()
    (tmp_path / "span-3" / "documents-0").write_bytes(b"")
    check_shards(tmp_path, None, contents=True)


def test_a_truncated_an_empty_and_a_missing_shard_are_named(corpus):
    shard = shards_of(corpus)[1]
    content = shard.read_bytes()
    shard.write_bytes(content[:-50])
    size = len(content)
    with pytest.raises(CorpusError, match=rf"{shard.name}: {size - 50} bytes, but {size} bytes were written; bring"):
        check_shards(corpus, None)
    shard.write_bytes(b"")
    with pytest.raises(CorpusError, match=rf"{shard.name}: 0 bytes, but {size} bytes"):
        check_shards(corpus, None)
    shard.unlink()
    with pytest.raises(CorpusError, match=rf"{shard.name}: missing, but {size} bytes"):
        check_shards(corpus, 1)


def test_a_flipped_byte_is_found_by_reading(corpus):
    shard = shards_of(corpus)[-1]
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    check_shards(corpus, None)
    with pytest.raises(CorpusError, match=rf"{shard.name}: its content has changed"):
        check_shards(corpus, None, contents=True)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"shards": [{"name": 1}]}', '{"shards": 3}'])
def test_a_spoilt_manifest_is_named(corpus, text):
    (corpus / "span-1" / "ingest.json").write_text(text)
    with pytest.raises(CorpusError, match=r"ingest.json: cannot be read"):
        check_shards(corpus, None)


def test_the_newest_span_is_the_one_that_counts(corpus, tmp_path):
    (tmp_path / "texts" / "more.txt").write_text("more\n" * 500)
    run_ingest(IngestOptions(inputs=[str(tmp_path / "texts")], out=str(corpus), shard_bytes=10_000))
    assert json.loads((corpus / "span-2" / "ingest.json").read_text())["shards"]
    shards_of(corpus)[0].unlink()
    check_shards(corpus, None)
    with pytest.raises(CorpusError, match="span-1"):
        check_shards(corpus, 1)
