"""Packed rows as a stream, for stores that cannot be read at random: shards interleaved, shuffled in a buffer.

The order is a pure function of seed and epoch, so a resume is exact; it is found again by reading up to
where training stopped. Where the rows lie on a local disk, `trainer_module.rows_dataset` is better in
everything: its shuffle is uniform, and a resume reads nothing twice.
"""

import numpy as np
import tensorflow as tf

from trainer_module.rows_dataset import Batch, RowReader, padded_from, permuted

_SHARDS_AT_ONCE = 16
_ROWS_OF_A_SHARD_AT_ONCE = 16


def training_batches(
    reader: RowReader,
    first_step: int,
    last_step: int,
    global_batch_size: int,
    seed: int,
    buffer_rows: int,
    places: slice | None = None,
) -> tf.data.Dataset:
    """Batches of steps `first_step` to `last_step - 1`, in order, read ahead in parallel.

    Every epoch takes the shards in an order of its own, a few at once, and draws rows from a buffer; every row
    comes once an epoch, and a batch may reach over the border of two. TensorFlow checks each record's checksum.

    Args:
      buffer_rows: rows among which the next one is drawn.
      places: of the global batch that are wanted; those beyond its end are rows of padding. None: all. Every worker
        reads the whole stream.
    """
    wanted = range(global_batch_size) if places is None else range(places.start, places.stop)
    epochs = tf.data.Dataset.range(-(-last_step * global_batch_size // reader.num_rows))
    records = epochs.flat_map(lambda epoch: _epoch(reader, epoch, seed, buffer_rows))
    batches = records.batch(global_batch_size, drop_remainder=True).skip(first_step).take(last_step - first_step)
    row_format = reader.manifest.row_format
    # decode_raw knows no uint32; ids and segments are far below what the sign bit takes away.
    dtype = tf.int32 if row_format.dtype == "uint32" else tf.as_dtype(row_format.dtype)

    def decode(payloads: tf.Tensor) -> Batch:
        if places is not None:
            payloads = tf.gather(payloads, [min(place, global_batch_size - 1) for place in wanted])
        values = tf.cast(tf.io.decode_raw(payloads, dtype), tf.int32)
        values = tf.ensure_shape(values, [len(wanted), 2 * row_format.row_len])
        batch = values[:, : row_format.row_len], values[:, row_format.row_len :]
        return padded_from(global_batch_size, wanted, batch, reader)

    return batches.map(decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


def _epoch(reader: RowReader, epoch: tf.Tensor, seed: int, buffer_rows: int) -> tf.data.Dataset:
    """Serialized rows of one epoch."""
    paths = tf.constant(np.array([path for path, _ in reader.shards]))
    numbers = tf.range(len(reader.shards), dtype=tf.int64)
    order = permuted(numbers, tf.zeros_like(numbers) + epoch, len(reader.shards), seed)
    files = tf.data.Dataset.from_tensor_slices(tf.gather(paths, order))
    rows = files.interleave(
        tf.data.TFRecordDataset,
        cycle_length=_SHARDS_AT_ONCE,
        block_length=_ROWS_OF_A_SHARD_AT_ONCE,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    return rows.shuffle(buffer_rows, seed=tf.constant(seed, tf.int64) + epoch, reshuffle_each_iteration=False)
