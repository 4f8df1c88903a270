"""What the model writes: it goes on from the beginnings of held-out documents."""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

# Registers the SentencePiece op, without which the model cannot be loaded.
import tensorflow_text  # noqa: F401

from foundation.documents import TEXT

NUM_SAMPLES = 10
MAX_NEW_TOKENS = 60
_PROMPT_BYTES = 80
_SETTINGS = {"temperature": 0.8, "top_p": 0.95, "top_k": 0, "repetition_penalty": 1.0}
_SIGNATURE = "serving_default"


@dataclasses.dataclass(frozen=True)
class Sample:
    """A prompt and what the model made of it."""

    prompt: str
    continuation: str


def sample(model_folder: Path, examples_folder: Path) -> list[Sample]:
    """Ten samples, or as many as there are documents; none of a model that does not generate.

    The seeds are fixed: the same model gives the same texts.

    Args:
      examples_folder: of a split, TFRecord files of documents.
    """
    prompts = list(itertools.islice(_beginnings(examples_folder), NUM_SAMPLES))
    model = tf.saved_model.load(str(model_folder))
    if not prompts or _SIGNATURE not in model.signatures:
        return []
    generate = model.signatures[_SIGNATURE]
    count = len(prompts)
    values = {
        "prompt": tf.constant([prompt.encode() for prompt in prompts]),
        "max_new_tokens": tf.fill([count], MAX_NEW_TOKENS),
        "seed": tf.range(count),
        **{name: tf.fill([count], value) for name, value in _SETTINGS.items()},
    }
    taken = generate.structured_input_signature[1]
    texts = generate(**{name: values[name] for name in taken})["text"].numpy()
    return [Sample(prompt, text.decode("utf-8", "replace")) for prompt, text in zip(prompts, texts, strict=True)]


def _beginnings(folder: Path) -> Iterator[str]:
    """The first words or line of each document that has any."""
    files = sorted(str(path) for path in folder.glob("*.gz")) or sorted(map(str, folder.glob("*")))
    compression = "GZIP" if files and files[0].endswith(".gz") else ""
    for record in tf.data.TFRecordDataset(files, compression_type=compression):
        example = tf.train.Example.FromString(record.numpy())
        text = b"".join(example.features.feature[TEXT].bytes_list.value[:1])
        start = text[:_PROMPT_BYTES].decode("utf-8", "ignore")
        if start.strip():
            yield start
