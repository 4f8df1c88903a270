"""Streamed rows: every row once an epoch, in an order that seed and epoch alone decide."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer_module.conftest import random_rows, write_rows
from trainer_module import rows_stream
from trainer_module.rows_dataset import RowReader


def numbered(tmp_path, count=24, shards=3, vocab_size=300):
    """A reader of rows whose first token is their number, from 4 on."""
    token_ids, segment_ids = random_rows(count, 8, vocab_size)
    token_ids[:, 0], segment_ids[:, 0] = np.arange(count) + 4, 1
    return RowReader(write_rows(tmp_path / "train", token_ids, segment_ids, vocab_size, shards)), token_ids, segment_ids


def first_tokens(reader, first_step, last_step, batch=5, seed=0, buffer_rows=8):
    batches = rows_stream.training_batches(reader, first_step, last_step, batch, seed, buffer_rows)
    return [ids.numpy()[:, 0].tolist() for ids, _ in batches]


@pytest.mark.parametrize("vocab_size", [300, 70_000])
def test_rows_are_read_exactly(tmp_path, vocab_size):
    reader, token_ids, segment_ids = numbered(tmp_path, vocab_size=vocab_size)
    for ids, segments in rows_stream.training_batches(reader, 0, 4, 6, 0, 8):
        wanted = ids.numpy()[:, 0] - 4
        np.testing.assert_array_equal(ids, token_ids[wanted])
        np.testing.assert_array_equal(segments, segment_ids[wanted])


def test_every_row_comes_once_an_epoch_and_epochs_differ(tmp_path):
    reader, *_ = numbered(tmp_path)
    order = np.concatenate(first_tokens(reader, 0, 12, batch=4)).tolist()
    first, second = order[:24], order[24:]
    assert sorted(first) == sorted(second) == list(range(4, 28))
    assert first != second


def test_a_stream_that_starts_later_is_the_rest_of_the_whole(tmp_path):
    """7 batches of 5 reach over the border of the first epoch of 24."""
    reader, *_ = numbered(tmp_path)
    whole = first_tokens(reader, 0, 7)
    assert len(whole) == 7
    for start in (1, 4, 6):
        assert first_tokens(reader, start, 7) == whole[start:]


def test_seeds_give_different_orders(tmp_path):
    reader, *_ = numbered(tmp_path)
    assert first_tokens(reader, 0, 4) != first_tokens(reader, 0, 4, seed=1)


def test_a_damaged_record_is_an_error(tmp_path):
    reader, *_ = numbered(tmp_path, shards=1)
    path = Path(reader.shards[0][0])
    content = bytearray(path.read_bytes())
    content[reader.manifest.row_format.record_bytes * 3 + 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(tf.errors.DataLossError):
        first_tokens(reader, 0, 6)
