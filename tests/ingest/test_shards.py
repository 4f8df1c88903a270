"""The same documents give the same shards, whatever runs they came in; ids that clash are named."""

import hashlib
import itertools
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import CorpusError
from foundation.tfrecord import read_records
from ingest import runs as runs_module
from ingest.dedup import Duplicates, find_duplicates, keep_all
from ingest.documents import Document
from ingest.examples import decode, encode
from ingest.runs import Run, RunWriter, save_runs
from ingest.shards import ShardTask, check_unique, plan_shards, shard_name

Make = Callable[..., list[Run]]

TEXTS = [f"text {number} ".encode() * (number % 13 + 1) for number in range(200)]
DOCUMENTS = [Document(f"d/{number}", text, f"s{number % 3}", f"w{number}") for number, text in enumerate(TEXTS)]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Runs of documents; a list of lists is one writer each."""

    def write(*parts: list[tuple[int, Document]], run_bytes: int = 64 << 20) -> list[Run]:
        found: list[Run] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runs_module, "RUN_BYTES", run_bytes)
            for part in parts:
                writer = RunWriter(tmp_path)
                for sequence, document in part:
                    writer.add(document, sequence)
                found += writer.finish()
        return found

    return write


def write_all(folder: Path, runs: list[Run], duplicates: Duplicates, shard_bytes: int) -> list[bytes]:
    folder.mkdir()
    save_runs(folder, runs)
    duplicates.save(folder)
    ranges = plan_shards(runs, duplicates, shard_bytes)
    paths = [folder / shard_name(number, len(ranges)) for number in range(len(ranges))]
    shards = [
        ShardTask(str(path), str(folder), low, high, None).run()
        for path, (low, high) in zip(paths, ranges, strict=True)
    ]
    check_unique(shards)
    for path, shard in zip(paths, shards, strict=True):
        content = path.read_bytes()
        assert (shard.name, shard.num_bytes) == (path.name, len(content))
        assert shard.sha256 == hashlib.sha256(content).hexdigest()
        assert shard.num_documents == len(list(read_records(path))) > 0
        assert shard.text_bytes == sum(shard.text_bytes_by_source.values())
    return [path.read_bytes() for path in paths]


def test_every_document_is_in_one_shard_and_shards_are_sorted_and_even(tmp_path: Path, make: Make) -> None:
    runs = make(list(enumerate(DOCUMENTS)))
    shards = write_all(tmp_path / "out", runs, keep_all(runs), shard_bytes=4000)
    records = [list(read_records(path)) for path in sorted((tmp_path / "out").glob("documents-*"))]
    ids = [[decode(record)["doc_id"][0] for record in shard] for shard in records]
    assert sorted(itertools.chain(*ids)) == sorted(document.doc_id.encode() for document in DOCUMENTS)
    assert all(shard == sorted(shard) for shard in ids)
    assert {record for shard in records for record in shard} == {encode(document) for document in DOCUMENTS}
    total = sum(map(len, shards))
    assert len(shards) == -(-total // 4000)
    assert all(abs(len(shard) - total / len(shards)) < 400 for shard in shards)


def test_order_grouping_and_size_of_runs_have_no_say(tmp_path: Path, make: Make) -> None:
    numbered = list(enumerate(DOCUMENTS))
    expected_runs = make(numbered)
    expected = write_all(tmp_path / "expected", expected_runs, find_duplicates(expected_runs), 4000)
    shuffled = numbered.copy()
    random.Random(7).shuffle(shuffled)
    many = make(shuffled[:70], shuffled[70:90], shuffled[90:], run_bytes=1500)[::-1]
    assert len(many) > 10
    assert write_all(tmp_path / "many", many, find_duplicates(many), 4000) == expected


def test_two_documents_with_one_id_are_an_error_that_names_both(tmp_path: Path, make: Make) -> None:
    runs = make(
        [(0, Document("x", b"one", "s", "a.jsonl, line 3")), (1, Document("x", b"two", "s", "b.jsonl, line 9"))]
    )
    with pytest.raises(CorpusError, match="'x': a.jsonl, line 3 and b.jsonl, line 9"):
        write_all(tmp_path / "out", runs, find_duplicates(runs), 4000)


def test_documents_at_the_bounds_of_ranges_are_in_one_shard(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    width = 1 << 48
    hashes = [0, 1, width - 1, width, 2 * width - 1, 2 * width, 2**64 - width - 1, 2**64 - width, 2**64 - 1]
    monkeypatch.setattr(runs_module, "doc_hash", lambda doc_id: hashes[int(doc_id)])
    runs = make([(number, Document(str(number), f"{number}".encode(), "s", "")) for number in range(len(hashes))])
    shards = write_all(tmp_path / "out", runs, keep_all(runs), shard_bytes=1)
    assert len(shards) == 5
    found = [record for path in (tmp_path / "out").glob("documents-*") for record in read_records(path)]
    assert sorted(decode(record)["doc_id"][0] for record in found) == [b"%d" % number for number in range(len(hashes))]


@given(sizes=st.lists(st.integers(1, 500), min_size=1, max_size=60), shard_bytes=st.integers(1, 3000))
def test_ranges_are_whole_disjoint_and_never_empty(
    sizes: list[int], shard_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    writer = RunWriter(tmp_path_factory.mktemp("runs"))
    for number, size in enumerate(sizes):
        writer.add(Document(f"d{number}", b"x" * size, "s", ""), number)
    runs = writer.finish()
    ranges = plan_shards(runs, keep_all(runs), shard_bytes)
    assert (ranges[0][0], ranges[-1][1]) == (0, 2**64 - 1)
    assert all(high + 1 == low for (_, high), (low, _) in itertools.pairwise(ranges))
    hashes = [int.from_bytes(hashlib.sha256(f"d{number}".encode()).digest()[:8], "big") for number in range(len(sizes))]
    assert all(any(low <= value <= high for value in hashes) for low, high in ranges)


@pytest.mark.parametrize("at_a_time", [1, 7, 1000])
def test_of_equal_texts_the_first_of_the_input_stays(
    make: Make, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    monkeypatch.setattr("ingest.dedup._DOCUMENTS_AT_A_TIME", at_a_time)
    random_texts = random.Random(3)
    texts = [f"text {random_texts.randrange(12)}".encode() for _ in range(60)]
    numbered = [(number, Document(f"d{number:02d}", text, "s", "")) for number, text in enumerate(texts)]
    runs = make(numbered[40:], numbered[:40], run_bytes=300)
    found = find_duplicates(runs)
    kept = set()
    for run, keep in zip(runs, found.keep, strict=True):
        kept |= set(run.index()[runs_module.SEQUENCE][np.asarray(keep)].tolist())
    first = {text: number for number, text in reversed(list(enumerate(texts)))}
    assert kept == set(first.values())
    assert found.count == 60 - len(first)
    copies = [f"d{number:02d} = d{first[text]:02d}" for number, text in enumerate(texts) if number != first[text]]
    assert found.examples == copies[:20]
