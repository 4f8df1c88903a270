"""Counts are exact, and do not depend on the order in which documents come."""

import random

import pytest

from components.corpus_gate import counting
from foundation.errors import CorpusError
from tests.components.corpus_gate.corpora import facts_of, write_split


def test_every_offence_is_counted_and_its_first_documents_named(tmp_path):
    documents = [
        ("good", "fine text"),
        ("bad-utf8", b"\xff\xfe"),
        ("nul", "a\0b"),
        ("empty", ""),
        ("long", "x" * 1001),
        ("just-right", "x" * 1000),
        ("replaced", "a\ufffdb\ufffd"),
    ]
    split = facts_of(tmp_path, {"train": documents}).splits["train"]
    assert split.num_documents == 7
    assert split.num_bytes == 9 + 2 + 3 + 0 + 1001 + 1000 + 8
    assert split.num_replacement_characters == 2
    assert split.offenders == {
        "invalid_utf8": ["bad-utf8"],
        "nul": ["nul"],
        "empty": ["empty"],
        "overlong": ["long"],
        "replacement_characters": ["replaced"],
    }
    assert dict(split.length_histogram) == {0: 1, 2: 2, 4: 2, 10: 2}


def test_texts_and_ids_that_come_twice(tmp_path):
    train = [("a", "same"), ("b", "same"), ("c", "same"), ("d", "other"), ("e", "own")]
    held_out = [("f", "other"), ("g", "new"), ("h", "new"), ("e", "third")]
    facts = facts_of(tmp_path, {"train": train, "eval": held_out})
    assert (facts.num_duplicates, facts.duplicates) == (3, ["b", "c", "h"])
    assert (facts.num_leaked, facts.leaked) == (1, ["f"])
    assert (facts.num_duplicate_ids, facts.duplicate_ids) == (1, ["e"])


def test_of_many_the_first_by_name_are_kept(tmp_path):
    documents = [(f"doc-{number:03d}", "") for number in range(100)]
    random.Random(0).shuffle(documents)
    split = facts_of(tmp_path, {"train": documents}).splits["train"]
    assert split.num_offending["empty"] == 100
    assert split.offenders["empty"] == [f"doc-{number:03d}" for number in range(5)]


def test_order_shards_and_workers_change_nothing(tmp_path):
    rng = random.Random(1)
    texts = ["", "twice", "a\0", "\ufffd", "long" * 300]
    documents = [(f"d{number}", rng.choice([*texts, f"own {number}"]), f"s{number % 3}") for number in range(60)]
    first = facts_of(tmp_path / "a", {"train": documents, "eval": documents[:7]})
    rng.shuffle(documents)
    workers = ("--direct_running_mode=multi_threading", "--direct_num_workers=3")
    again = facts_of(
        tmp_path / "b",
        {"train": documents, "eval": sorted(documents, key=lambda d: int(d[0][1:]))[:7]},
        shards=4,
        options=workers,
    )
    assert again == first
    assert first.num_leaked == 7


def test_an_empty_corpus_has_no_splits(tmp_path):
    assert facts_of(tmp_path, {"train": []}).splits == {}


def test_a_damaged_file_is_named_with_its_record(tmp_path):
    from foundation.tfrecord import frame_one

    path = tmp_path / "shard"
    path.write_bytes(frame_one(b"\xff\xff no example"))
    with pytest.raises(CorpusError, match=r"shard, record 0: no tf.Example"):
        list(counting.read_file("train", str(path)))
    (gz,) = write_split(tmp_path / "train", [("a", "x" * 100), ("b", "y" * 100)])
    with open(gz, "rb") as file:
        content = file.read()
    with open(gz, "wb") as file:
        file.write(content[:-20])
    with pytest.raises(CorpusError, match=r"data_tfrecord-00000-of-00001.gz, record"):
        list(counting.read_file("train", gz))
