"""How fast text becomes tokens: `python -m benchmarks.tokenizing`.

The graph that Transform runs, batch by batch, beside SentencePiece called directly with the same model on the
same texts, document by document, which is the best one can do from Python: megabytes of text per second of CPU
time, in turns, and the ratio round by round. Then the graph's growth from 1x to 10x of the texts.
"""

import argparse
import collections
import os
import statistics
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import sentencepiece
import tensorflow as tf

from components.tokenizer.learning import LearningOptions, count_words_of_batch, learn_from_counts
from trainer_module.tokenization import Tokenizer, escape_text

BATCH = 64
"""Documents at a time; Transform's own batches are of this order."""


def texts_of_the_standard_library(megabytes: float) -> list[bytes]:
    """Source files, repeated up to about so many megabytes."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [text for text in (file.read_bytes() for file in files) if text]
    wanted, taken = [], 0
    while taken < megabytes * 1e6:
        for text in texts:
            wanted.append(text)
            taken += len(text)
            if taken >= megabytes * 1e6:
                break
    return wanted


def in_graph(model: bytes) -> Callable[[list[bytes]], int]:
    """Number of tokens of texts, by the graph."""
    tokenizer = Tokenizer(model)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def tokenize(texts: tf.Tensor) -> tf.Tensor:
        return tf.cast(tokenizer.document(texts), tf.int64).to_sparse().values

    def count(texts: list[bytes]) -> int:
        return sum(len(tokenize(tf.constant(texts[at : at + BATCH]))) for at in range(0, len(texts), BATCH))

    return count


def directly(model: bytes) -> Callable[[list[bytes]], int]:
    """The same, by SentencePiece itself; bos and eos counted."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return lambda texts: sum(len(processor.encode(escape_text(text.decode()))) + 2 for text in texts)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=float, default=4.0)
    parser.add_argument("--vocab-size", type=int, default=4096)
    options = parser.parse_args()
    texts = texts_of_the_standard_library(options.megabytes)
    words: collections.Counter[str] = collections.Counter(dict(count_words_of_batch((np.array(texts, dtype=object),))))
    model = learn_from_counts(words.items(), LearningOptions(options.vocab_size, False, 500_000))
    ways = {"SentencePiece": directly(model), "graph": in_graph(model)}
    counts = {name: count(texts) for name, count in ways.items()}
    if len(set(counts.values())) != 1:
        raise SystemExit(f"the ways do not agree: {counts}")
    size = sum(map(len, texts)) / 1e6
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, count in ways.items():
            started = time.process_time()
            count(texts)
            rates[name].append(size / (time.process_time() - started))
    print(f"{size:.1f} MB, {counts['graph']:,} tokens; MB per CPU second, median (least to most) of {options.rounds}")
    for name, measured in rates.items():
        ratios = [rate / other for rate, other in zip(measured, rates["SentencePiece"], strict=True)]
        print(
            f"{name:<15}{statistics.median(measured):>7.2f}  ({min(measured):.2f} to {max(measured):.2f})"
            f"{statistics.median(ratios):>7.2f}x  ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    larger = texts * 10
    started = time.process_time()
    ways["graph"](larger)
    print(f"graph, 10x: {10 * size / (time.process_time() - started):.2f} MB per CPU second")


if __name__ == "__main__":
    main()
