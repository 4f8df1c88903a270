"""Rows are read exactly, in an order that is a pure function of seed and step."""

import numpy as np
import pytest
import tensorflow as tf

from foundation.errors import CorpusError, TrainingError
from tests.trainer_module.conftest import random_rows, write_rows
from trainer_module import rows_dataset


def order_of(num_rows, batch, steps, seed=0):
    batches = [rows_dataset.training_row_indices(tf.constant(s), num_rows, batch, seed).numpy() for s in range(steps)]
    return np.concatenate(batches)


@pytest.mark.parametrize("vocab_size", [300, 70_000])
@pytest.mark.parametrize("shards", [1, 3])
def test_rows_come_back_as_they_were_written(tmp_path, shards, vocab_size):
    token_ids, segment_ids = random_rows(10, 8, vocab_size)
    reader = rows_dataset.RowReader(write_rows(tmp_path / "train", token_ids, segment_ids, vocab_size, shards))
    wanted = [9, 0, 3, 4, 3, 6, 7]
    read_ids, read_segments = reader.read(tf.constant(wanted, tf.int64))
    np.testing.assert_array_equal(read_ids, token_ids[wanted])
    np.testing.assert_array_equal(read_segments, segment_ids[wanted])


def test_every_epoch_is_a_permutation_of_its_own():
    order = order_of(num_rows=24, batch=8, steps=6)
    first, second = order[:24], order[24:]
    assert sorted(first) == sorted(second) == list(range(24))
    assert list(first) != list(second)
    assert list(first) != list(range(24))


def test_the_order_of_rows_does_not_depend_on_the_batch_size():
    """Batches of 7 straddle epochs of 24 rows; the sequence is that of batches of 8."""
    np.testing.assert_array_equal(order_of(24, 7, 8)[:56], order_of(24, 8, 7)[:56])


def test_the_order_is_the_same_in_every_release():
    """Changing it would silently break the resume of every run: these literals must stay."""
    assert order_of(num_rows=10, batch=10, steps=1, seed=3).tolist() == [2, 7, 9, 3, 6, 4, 0, 5, 1, 8]


def test_seeds_give_different_orders():
    assert order_of(100, 100, 1, seed=0).tolist() != order_of(100, 100, 1, seed=1).tolist()


def test_a_batch_larger_than_the_corpus_takes_several_epochs():
    counts = np.bincount(order_of(num_rows=3, batch=9, steps=1), minlength=3)
    assert counts.tolist() == [3, 3, 3]


def test_batches_start_at_any_step(tmp_path):
    token_ids, segment_ids = random_rows(10, 8)
    reader = rows_dataset.RowReader(write_rows(tmp_path / "train", token_ids, segment_ids, shards=2))
    whole = [batch[0].numpy() for batch in rows_dataset.training_batches(reader, 0, 6, 4, seed=1)]
    rest = [batch[0].numpy() for batch in rows_dataset.training_batches(reader, 3, 6, 4, seed=1)]
    np.testing.assert_array_equal(whole[3:], rest)
    np.testing.assert_array_equal(np.concatenate(whole), token_ids[order_of(10, 4, 6, seed=1)])


def test_evaluation_reads_in_order_and_pads_the_last_batch(tmp_path):
    token_ids, segment_ids = random_rows(10, 8)
    reader = rows_dataset.RowReader(write_rows(tmp_path / "eval", token_ids, segment_ids))
    batches = [(ids.numpy(), seg.numpy()) for ids, seg in rows_dataset.evaluation_batches(reader, 7, 4)]
    assert len(batches) == 2
    np.testing.assert_array_equal(batches[0][0], token_ids[:4])
    np.testing.assert_array_equal(batches[1][0][:3], token_ids[4:7])
    assert batches[1][0][3].max() == 0 and batches[1][1][3].max() == 0


@pytest.mark.parametrize("damage", ["missing", "short", "long"])
def test_a_shard_of_the_wrong_size_is_named(tmp_path, damage):
    folder = write_rows(tmp_path / "train", *random_rows(6, 8), shards=2)
    shard = folder / "rows-00001-of-00002.tfrecord"
    if damage == "missing":
        shard.unlink()
    elif damage == "short":
        shard.write_bytes(shard.read_bytes()[:-1])
    else:
        shard.write_bytes(shard.read_bytes() + b"x")
    with pytest.raises(TrainingError, match="rows-00001-of-00002.tfrecord"):
        rows_dataset.RowReader(folder)


def test_a_split_without_rows_is_an_error(tmp_path):
    with pytest.raises(TrainingError, match="no rows"):
        rows_dataset.RowReader(write_rows(tmp_path / "train", *random_rows(0, 8)))


def test_a_folder_without_rows_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match="packing.json is missing"):
        rows_dataset.RowReader(tmp_path)
