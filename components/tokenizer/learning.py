"""Learns a SentencePiece BPE model from a corpus: words are counted in Beam, pieces learned from the counts.

Only the most frequent words reach the process that learns, so the corpus may be of any size. The same
counts give the same model, byte for byte, whatever the number of workers or the order of documents.
"""

import collections
import dataclasses
import hashlib
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import apache_beam as beam
import numpy as np
import sentencepiece

from foundation.errors import CorpusError
from foundation.special_tokens import BOS_ID, EOS_ID, MIN_VOCAB_SIZE, PAD_ID, UNK_ID
from trainer_module.tokenization import escape_text

# A run of spaces but for the last, or a word or a run of signs with the space before it. Line ends and
# tabs belong to no word: they cannot stand in the trainer's input, and byte fallback covers them.
_WORD = re.compile(r" +(?= \S)| ?\w+| ?[^\w\s]+| +")

MAX_WORD_CHARACTERS = 64
"""Longer words (hashes, encoded data) teach nothing that other text has."""


@dataclasses.dataclass(frozen=True)
class LearningOptions:
    """What decides the tokenizer, beside the text."""

    vocab_size: int
    """Pieces, special and byte pieces among them."""

    split_digits: bool
    """Every digit is a piece of its own."""

    max_words: int
    """Most frequent words that are learned from."""

    symbols: tuple[str, ...] = ()
    """Each is always one piece, with the ids after the special ones, in this order."""

    sample_rate: float = 1.0
    """Share of documents that are learned from, chosen by a hash of their text."""

    model_file: str | None = None
    """A ready model to take instead of learning one."""

    model_sha256: str | None = None
    """Of its content, so that another content is another tokenizer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbols", tuple(self.symbols))  # a list, when it comes from JSON


class LearnTokenizer(beam.PTransform):
    """PCollection of batches of texts -> PCollection of one serialized SentencePiece model.

    A batch is what Transform gives an analyzer: a tuple of one array of bytes, of any shape.
    """

    def __init__(self, options: LearningOptions):
        super().__init__()
        self._options = options

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        if self._options.model_file is not None:
            path = batches.pipeline | "ModelFile" >> beam.Create([self._options.model_file])
            return path | "ReadModel" >> beam.Map(_read, self._options.model_sha256)
        most_frequent = beam.combiners.Top.Of(self._options.max_words, key=_by_count_then_word)
        return (
            batches
            | "CountWordsOfBatch" >> beam.FlatMap(count_words_of_batch, self._options.sample_rate)
            | "AddUpCounts" >> beam.CombinePerKey(sum)
            | "MostFrequentWords" >> most_frequent.without_defaults()
            | "LearnPieces" >> beam.Map(learn_from_counts, self._options)
        )


def count_words_of_batch(batch: tuple[np.ndarray, ...], sample_rate: float = 1.0) -> Iterator[tuple[str, int]]:
    """Words and their counts in one batch of UTF-8 texts, of which a share `sample_rate` is looked at."""
    counts: collections.Counter[str] = collections.Counter()
    for text in np.ravel(batch[0]):
        if sample_rate < 1.0 and not _is_sampled(text, sample_rate):
            continue
        counts.update(_WORD.findall(escape_text(text.decode("utf-8"))))
    for word, count in counts.items():
        if len(word) <= MAX_WORD_CHARACTERS:
            yield word, count


def learn_from_counts(counts: Iterable[tuple[str, int]], options: LearningOptions) -> bytes:
    """Learns the model.

    Args:
      counts: words with their numbers of occurrences, each word once, in any order.

    Returns:
      The serialized SentencePiece model.

    Raises:
      CorpusError: the text has too few different words for so large a vocabulary.
    """
    ordered = sorted(counts, key=_by_count_then_word, reverse=True)
    known = _affordable_characters(ordered, options.vocab_size - len(options.symbols))
    lines = (f"{word}\t{count}" for word, count in ordered if known.issuperset(word))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            input_format="tsv",
            model_writer=model,
            model_type="bpe",
            vocab_size=options.vocab_size,
            byte_fallback=True,
            character_coverage=1.0,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            split_digits=options.split_digits,
            user_defined_symbols=list(options.symbols),
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            minloglevel=2,
        )
    except RuntimeError as error:
        largest = re.search(r"<= (\d+)", str(error))
        remedy = f"set model.vocab_size to {largest[1]} or less" if largest else "lower model.vocab_size"
        raise CorpusError(
            f"tokenizer: the training split has {len(ordered)} different words, too few for "
            f"model.vocab_size {options.vocab_size}; {remedy}, or add documents ({error})"
        ) from error
    return model.getvalue()


def _affordable_characters(ordered: list[tuple[str, int]], vocab_size: int) -> set[str]:
    """Most frequent characters, at most half of the pieces: rarer ones are left to byte fallback.

    SentencePiece gives every character that it sees a piece, and refuses to start where they do not fit.
    """
    counts: collections.Counter[str] = collections.Counter()
    for word, count in ordered:
        for character in word:
            counts[character] += count
    limit = max(1, (vocab_size - MIN_VOCAB_SIZE) // 2)
    by_count = sorted(counts.items(), key=_by_count_then_word, reverse=True)
    return {character for character, _ in by_count[:limit]}


def _is_sampled(text: bytes, sample_rate: float) -> bool:
    """Whether a text is among those learned from: the same in every run and on every worker."""
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") < sample_rate * 2**64


def _read(path: str, sha256: str | None) -> bytes:
    model = Path(path).read_bytes()
    if hashlib.sha256(model).hexdigest() != sha256:
        raise CorpusError(f"{path}: has changed since the run began; run again")
    return model


def _by_count_then_word(item: tuple[str, int]) -> tuple[int, str]:
    """An order without ties, so that nothing depends on the order of arrival."""
    word, count = item
    return count, word
