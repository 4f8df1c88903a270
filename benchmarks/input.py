"""How fast rows reach a training step: `python -m benchmarks.input`.

Two tables. The first is the reader alone, in random order: million tokens per second of batches of 32
rows of 512 tokens, for each value of `train.input`, and for what it is compared with, a plain front-to-back
read of the same TFRecord file. The second is what a step loses: steps of the demonstration's model on rows
as they are read, and on one batch that is there already; the stall is one minus the ratio of their rates.
All take turns, round after round.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from foundation.rows import Ledger, PackingManifest, RowFormat
from foundation.tfrecord import frame
from trainer_module import rows_dataset, rows_stream
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.state import TrainState
from trainer_module.step import make_train_step

VOCAB_SIZE = 32_768
READ_BATCH = 32


def write_rows(
    folder: Path, num_rows: int, seq_len: int, vocab_size: int = VOCAB_SIZE, tokenizer_sha256: str = "none"
) -> Path:
    """Random rows in four shards."""
    row_format = RowFormat.for_vocab(seq_len, vocab_size)
    random = np.random.default_rng(0)
    shard_rows = [len(part) for part in np.array_split(np.arange(num_rows), 4)]
    manifest = PackingManifest(
        split=folder.name,
        policy="concat",
        row_format=row_format,
        vocab_size=vocab_size,
        tokenizer_sha256=tokenizer_sha256,
        num_rows=num_rows,
        num_pad_tokens=0,
        num_cut_documents=0,
        tokens_by_source={},
        shard_rows=shard_rows,
        ledger=Ledger(),
    )
    folder.mkdir(parents=True)
    for name, count in zip(manifest.shard_names, shard_rows, strict=True):
        token_ids = random.integers(4, 4096, (count, seq_len + 1))
        (folder / name).write_bytes(frame(row_format.encode(token_ids, np.ones_like(token_ids))).tobytes())
    manifest.save(folder)
    return folder


def sequential(reader: rows_dataset.RowReader) -> Iterator[Any]:
    """Front to back, decoded, in batches: what a random order is compared with."""
    files = [path for path, _ in reader.shards]
    decode = lambda payloads: tf.cast(tf.io.decode_raw(payloads, tf.uint16), tf.int32)  # noqa: E731
    dataset = tf.data.TFRecordDataset(files).repeat().batch(READ_BATCH, drop_remainder=True)
    return iter(dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE))


def measure_readers(folder: Path, rounds: int, batches: int) -> None:
    """Prints the first table."""
    mapped, memory = rows_dataset.RowReader(folder), rows_dataset.RowReader(folder, in_memory=True)
    many = 1_000_000
    ways: dict[str, Iterator[Any]] = {
        "front to back": sequential(mapped),
        "mapped": iter(rows_dataset.training_batches(mapped, 0, many, READ_BATCH, seed=0)),
        "memory": iter(rows_dataset.training_batches(memory, 0, many, READ_BATCH, seed=0)),
        "stream": iter(rows_stream.training_batches(mapped, 0, many, READ_BATCH, 0, 16_384)),
    }
    tokens = batches * READ_BATCH * mapped.manifest.row_format.seq_len
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, iterator in ways.items():
            started = time.perf_counter()
            for _ in range(batches):
                next(iterator)
            if number:  # the first round fills buffers and caches
                rates[name].append(tokens / (time.perf_counter() - started) / 1e6)
    print(f"reader alone, {os.cpu_count()} cores, M tokens/s, median (least to most) of {rounds}")
    for name, measured in rates.items():
        ratios = [rate / other for rate, other in zip(measured, rates["front to back"], strict=True)]
        print(
            f"{name:<15}{statistics.median(measured):>8.1f}  ({min(measured):.1f} to {max(measured):.1f})"
            f"{statistics.median(ratios):>8.2f}x  ({min(ratios):.2f} to {max(ratios):.2f})"
        )


def measure_stall(folder: Path, rounds: int, steps: int) -> None:
    """Prints the second table."""
    reader = rows_dataset.RowReader(folder)
    model = ModelConfig(vocab_size=VOCAB_SIZE // 8, seq_len=reader.manifest.row_format.seq_len)
    config = TrainConfig(steps=1_000_000, compile="fused")
    step = make_train_step(model, config, TrainState(model, config))
    batches = iter(rows_dataset.training_batches(reader, 0, config.steps, config.global_batch_size, seed=0))
    repeated = next(batches)
    float(step(*repeated).loss)
    stalls = []
    for _ in range(rounds):
        seconds = []
        for following in (lambda: next(batches), lambda: repeated):
            started = time.perf_counter()
            for _ in range(steps):
                loss = step(*following()).loss
            float(loss)
            seconds.append(time.perf_counter() - started)
        stalls.append(1 - seconds[1] / seconds[0])
    spread = f"{min(stalls):.1%} to {max(stalls):.1%} of {rounds} rounds of {steps} steps"
    print(f"stall of the demonstration's step: {statistics.median(stalls):.1%}, {spread}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=500, help="of a turn of the readers")
    parser.add_argument("--steps", type=int, default=8, help="of a turn of the stall")
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure_readers(write_rows(Path(folder) / "read", options.rows, 512), options.rounds, options.batches)
        measure_stall(write_rows(Path(folder) / "train", 20_000, 256), options.rounds, options.steps)


if __name__ == "__main__":
    main()
