"""Packed rows as training input, by index.

The row at global position g is `permutation(seed, epoch)[g mod rows]`, a pure function: the batch of
step s depends on (seed, s, global batch) alone, never on restarts, workers or timing, and resuming
needs no iterator state. Shards are mapped into memory and gathered inside the tf.data graph; rows
have constant length, so nothing is parsed (`foundation.rows`).
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

from foundation.errors import CorpusError, TrainingError
from foundation.rows import FRAME_BYTES_BEFORE, PackingManifest
from foundation.tfrecord import first_damaged

Batch = tuple[tf.Tensor, tf.Tensor]
"""token_ids, segment_ids: each [rows, seq_len + 1] int32."""


_SHUFFLE_ROUNDS = 4
"""Rounds of the cipher behind the permutation: TensorFlow's own default. Changing it changes every order."""


_ROWS_VERIFIED_AT_ONCE = 1024


class RowReader:
    """The rows of one split, in memory-mapped shards."""

    def __init__(self, folder: str | Path, in_memory: bool = False):
        """Opens a split's folder.

        Args:
          in_memory: the rows are read into memory once; else the shards' files are mapped, and rows come from the
            page cache or the disk.

        Raises:
          CorpusError: no packing manifest.
          TrainingError: a shard is missing or has not the size that the manifest says; no rows.
        """
        self.folder = Path(folder)
        self.manifest = PackingManifest.load(self.folder)
        self.num_rows = self.manifest.num_rows
        self._in_memory = in_memory
        if self.num_rows == 0:
            raise TrainingError(f"{self.folder}: the split has no rows; give it more documents")
        self._loaded: dict[int, tf.Tensor] = {}
        row_format = self.manifest.row_format
        self.shards: list[tuple[str, int]] = []
        """Path and number of rows of each shard that has any."""
        for name, rows in zip(self.manifest.shard_names, self.manifest.shard_rows, strict=True):
            path = self.folder / name
            expected = rows * row_format.record_bytes
            actual = path.stat().st_size if path.exists() else None
            if actual != expected:
                raise TrainingError(
                    f"{path}: {'missing' if actual is None else f'{actual} bytes'}, expected {expected} bytes "
                    f"({rows} rows of {row_format.record_bytes}); delete the folder and run the pipeline again"
                )
            if rows:
                self.shards.append((str(path.absolute()), rows))

    def read(self, indices: tf.Tensor) -> Batch:
        """Rows by number, inside a graph.

        Args:
          indices: [N] int64, each at least 0 and below `num_rows`.

        Returns:
          token_ids, segment_ids: [N, seq_len + 1] int32.
        """
        row_format = self.manifest.row_format
        dtype = tf.dtypes.as_dtype(row_format.dtype)
        first = np.concatenate([[0], np.cumsum([rows for _, rows in self.shards])])
        if len(self.shards) == 1:
            records = self._gather(0, indices)
        else:
            shard_of = tf.searchsorted(tf.constant(first[1:], tf.int64), indices, side="right")
            places = tf.dynamic_partition(tf.range(tf.size(indices)), shard_of, len(self.shards))
            wanted = tf.dynamic_partition(indices - tf.gather(first[:-1], shard_of), shard_of, len(self.shards))
            parts = [self._gather(shard, numbers) for shard, numbers in enumerate(wanted)]
            records = tf.dynamic_stitch(places, parts)
        skip = FRAME_BYTES_BEFORE // dtype.size
        payload = tf.cast(records[:, skip : skip + 2 * row_format.row_len], tf.int32)
        return payload[:, : row_format.row_len], payload[:, row_format.row_len :]

    def verify(self) -> None:
        """Checks every row against its checksum: a second or so for a billion tokens, once its file is in memory.

        Raises:
          CorpusError: a row is damaged; names the file, the row and its place.
        """
        row_format = self.manifest.row_format
        for path, rows in self.shards:
            records = np.memmap(path, dtype=np.uint8, mode="r", shape=(rows, row_format.record_bytes))
            for start in range(0, rows, _ROWS_VERIFIED_AT_ONCE):
                bad = first_damaged(np.ascontiguousarray(records[start : start + _ROWS_VERIFIED_AT_ONCE]))
                if bad is not None:
                    row = start + bad
                    raise CorpusError(
                        f"{path}: row {row} (byte {row * row_format.record_bytes}) does not match its checksum; "
                        "delete the folder and run the pipeline again from SequencePacker"
                    )

    def _gather(self, shard: int, numbers: tf.Tensor) -> tf.Tensor:
        """Whole records, framing included, [N, record_bytes / dtype size]."""
        path, rows = self.shards[shard]
        dtype = tf.dtypes.as_dtype(self.manifest.row_format.dtype)
        shape = [rows, self.manifest.row_format.record_bytes // dtype.size]
        if self._in_memory:
            if shard not in self._loaded:
                with tf.init_scope():  # outside the graph that reads it: once, not once a batch
                    self._loaded[shard] = tf.constant(np.fromfile(path, dtype=dtype.as_numpy_dtype).reshape(shape))
            return tf.gather(self._loaded[shard], numbers)
        mapped = tf.raw_ops.ImmutableConst(dtype=dtype, shape=shape, memory_region_name=path)
        return tf.gather(mapped, numbers)


def training_row_indices(step: tf.Tensor, num_rows: int, global_batch_size: int, seed: int) -> tf.Tensor:
    """Numbers of the rows that make step `step` (counted from 0): [global_batch_size] int64.

    Every epoch is a permutation of its own; a batch may reach over the border of two.
    """
    position = tf.cast(step, tf.int64) * global_batch_size + tf.range(global_batch_size, dtype=tf.int64)
    return permuted(position % num_rows, position // num_rows, num_rows, seed)


def permuted(places: tf.Tensor, epochs: tf.Tensor, count: int, seed: int) -> tf.Tensor:
    """What stands at each place of its epoch's permutation of 0 to `count - 1`.

    Args:
      places, epochs: [N] int64.
    """
    zeros = tf.zeros_like(epochs)
    # The raw op, since tf.random.experimental.index_shuffle refuses the matrix of seeds that it documents.
    return tf.raw_ops.RandomIndexShuffle(
        index=places,
        seed=tf.stack([zeros + seed, epochs, zeros], axis=1),
        max_index=tf.constant(count - 1, tf.int64),
        rounds=_SHUFFLE_ROUNDS,
    )


def training_batches(
    reader: RowReader,
    first_step: int,
    last_step: int,
    global_batch_size: int,
    seed: int,
    places: slice | None = None,
) -> tf.data.Dataset:
    """Batches of steps `first_step` to `last_step - 1`, in order, read ahead in parallel.

    Args:
      places: of the global batch that are wanted; those beyond its end are rows of padding. None: all.
    """
    steps = tf.data.Dataset.range(first_step, last_step)
    wanted = range(global_batch_size) if places is None else range(places.start, places.stop)

    def batch_of(step: tf.Tensor) -> Batch:
        indices = training_row_indices(step, reader.num_rows, global_batch_size, seed)
        if places is not None:
            indices = tf.gather(indices, [min(place, global_batch_size - 1) for place in wanted])
        return padded_from(global_batch_size, wanted, reader.read(indices), reader)

    return steps.map(batch_of, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


def padded_from(end: int, places: range, batch: Batch, reader: RowReader) -> Batch:
    """The rows of some places of a batch, those from place `end` on turned into padding."""
    shape = [len(places), reader.manifest.row_format.row_len]
    token_ids, segment_ids = (tf.ensure_shape(values, shape) for values in batch)
    if not places or places[-1] < end:
        return token_ids, segment_ids
    present = tf.constant([[int(place < end)] for place in places], tf.int32)
    return token_ids * present, segment_ids * present


def evaluation_batches(reader: RowReader, max_rows: int, batch_size: int) -> tf.data.Dataset:
    """The first `max_rows` rows in their order; the last batch is filled up with rows of padding."""
    total = min(max_rows, reader.num_rows)
    starts = tf.data.Dataset.range(0, total, batch_size)

    def batch_at(start: tf.Tensor) -> Batch:
        indices = start + tf.range(batch_size, dtype=tf.int64)
        token_ids, segment_ids = reader.read(tf.minimum(indices, total - 1))
        present = tf.cast(indices < total, tf.int32)[:, None]
        shape = [batch_size, reader.manifest.row_format.row_len]
        return tf.ensure_shape(token_ids * present, shape), tf.ensure_shape(segment_ids * present, shape)

    return starts.map(batch_at, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)
