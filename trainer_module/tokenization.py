"""Text to token ids and back, inside a graph: the one definition that Transform and the exported model share.

A document is bos, the pieces of its text, eos. The SentencePiece model uses identity normalization
and byte fallback, so every text comes back byte for byte. One character needs help: SentencePiece
writes a space as U+2581, so a U+2581 in the text would come back as a space. It is escaped before and
unescaped after. The escape character is SUBSTITUTE (U+001A), which hardly occurs in text.

`tensorflow_text` registers the op: whoever loads a graph with it must import tensorflow_text first.
"""

import tensorflow as tf
import tensorflow_text as tf_text

from foundation.special_tokens import BOS_ID, EOS_ID, NUM_SPECIAL_TOKENS

_ESCAPE = "\x1a"
_MARKER = "\u2581"
_BROKEN = "\ufffd"
_ESCAPED_ESCAPE = _ESCAPE + "a"
_ESCAPED_MARKER = _ESCAPE + "b"


def escape(text: tf.Tensor) -> tf.Tensor:
    """Makes U+2581 safe for SentencePiece. Strings of any shape."""
    # After the first step every escape character is followed by "a", so the second adds no ambiguity.
    text = tf.strings.regex_replace(text, _ESCAPE, _ESCAPED_ESCAPE)
    return tf.strings.regex_replace(text, _MARKER, _ESCAPED_MARKER)


def unescape(text: tf.Tensor) -> tf.Tensor:
    """The inverse of `escape`."""
    text = tf.strings.regex_replace(text, _ESCAPED_MARKER, _MARKER)
    return tf.strings.regex_replace(text, _ESCAPED_ESCAPE, _ESCAPE)


def escape_text(text: str) -> str:
    """`escape` for a Python string."""
    return text.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_MARKER, _ESCAPED_MARKER)


def unescape_text(text: str) -> str:
    """`unescape` for a Python string."""
    return text.replace(_ESCAPED_MARKER, _MARKER).replace(_ESCAPED_ESCAPE, _ESCAPE)


def check_utf8(text: tf.Tensor, name: str) -> tf.Operation:
    """Asserts that texts [B] are UTF-8. Raises InvalidArgumentError, with `name`, which of them, and the remedy."""
    # Whatever is no character becomes U+FFFD; what is one stays.
    is_valid = tf.equal(tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace"), text)
    wrong = tf.where(tf.logical_not(is_valid))[:, 0]
    return tf.debugging.Assert(
        tf.reduce_all(is_valid), [f"{name}: not valid UTF-8; encode the text as UTF-8. Rows, from 0:", wrong], 8
    )


class Tokenizer(tf.Module):
    """A SentencePiece model inside the graph that uses it. A module, so that a SavedModel takes it along."""

    def __init__(self, model: bytes):
        """Takes a serialized SentencePiece model whose special tokens are those of `foundation.special_tokens`."""
        super().__init__(name="tokenizer")
        self._op = tf_text.SentencepieceTokenizer(model=model)

    def pieces(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Ids of the text alone: [B] string -> [B, (pieces)] int32."""
        return self._op.tokenize(escape(text))

    def document(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Ids of whole documents: [B] string -> [B, (1 + pieces + 1)] int32."""
        pieces = self.pieces(text)
        return tf.concat([_column(pieces, BOS_ID), pieces, _column(pieces, EOS_ID)], axis=1)

    def prompt(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Ids of documents that go on: [B] string -> [B, (1 + pieces)] int32."""
        pieces = self.pieces(text)
        return tf.concat([_column(pieces, BOS_ID), pieces], axis=1)

    def text(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        """[B, (tokens)] int32 -> [B] string. Special tokens give nothing; broken UTF-8 becomes U+FFFD."""
        return unescape(self._escaped_text(token_ids))

    def text_so_far(self, token_ids: tf.RaggedTensor, is_finished: tf.Tensor) -> tf.Tensor:
        """The part of `text` [B] that further tokens leave as it is; all of it where a row is finished.

        Left out are U+FFFD at the end, which may be the first bytes of a character, and the first half of an escape.
        """
        text = self._escaped_text(token_ids)
        certain = tf.strings.regex_replace(text, f"(?:{_ESCAPE}|{_BROKEN}+)$", "")
        return unescape(tf.where(is_finished, text, certain))

    def _escaped_text(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        return self._op.detokenize(tf.ragged.boolean_mask(token_ids, token_ids >= NUM_SPECIAL_TOKENS))


def _column(like: tf.RaggedTensor, token_id: int) -> tf.RaggedTensor:
    """[B, 1] of one id."""
    values = tf.fill([like.nrows()], tf.constant(token_id, tf.int32))
    return tf.RaggedTensor.from_uniform_row_length(values, 1)
