"""A SentencePiece model that somebody has learned already: what it must be to be taken."""

from pathlib import Path

import sentencepiece

from foundation.errors import ConfigError
from foundation.special_tokens import BOS_ID, EOS_ID, NUM_BYTE_TOKENS, PAD_ID, UNK_ID

_PROBES = (
    "plain words",
    "   spaces before,  between and after   ",
    "tab\tline\r\nend\n",
    "\ufb01 \uff21 \u0149 e\u0301 \ufe30",  # what normalization would rewrite
    "\ud55c\uad6d\uc5b4 \U0001f600",
    "",
)


def read_ready_model(path: str | Path, vocab_size: int) -> bytes:
    """The serialized model.

    Raises:
      ConfigError: it cannot be read, or text would not come back byte for byte, or its size or special ids are not
        those of the configuration; says all that is wrong.
    """
    try:
        model = Path(path).read_bytes()
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"tokenizer.model_file: {path}: no SentencePiece model ({error}); give another") from None
    faults = _faults(processor, vocab_size)
    if faults:
        raise ConfigError(
            f"tokenizer.model_file: {path}: {'; '.join(faults)}. Learn it with byte_fallback, normalization_rule_name "
            "identity, add_dummy_prefix and remove_extra_whitespaces off, pad_id 0, unk_id 1, bos_id 2, eos_id 3"
        )
    return model


def _faults(processor: sentencepiece.SentencePieceProcessor, vocab_size: int) -> list[str]:
    """What keeps the model from being taken, in words."""
    faults = []
    size = processor.get_piece_size()
    if size != vocab_size:
        faults.append(f"it has {size} pieces, model.vocab_size is {vocab_size}: set that to {size}")
    special = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if special != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
        faults.append(f"its ids of pad, unk, bos, eos are {special}, not {(PAD_ID, UNK_ID, BOS_ID, EOS_ID)}")
    num_bytes = sum(processor.is_byte(number) for number in range(size))
    if num_bytes != NUM_BYTE_TOKENS:
        faults.append(f"it has {num_bytes} byte pieces, not {NUM_BYTE_TOKENS}: some text would become unknown")
    for probe in _PROBES:
        back = processor.decode(processor.encode(probe))
        if back != probe:
            faults.append(f"{probe!r} comes back as {back!r}")
            break
    return faults
