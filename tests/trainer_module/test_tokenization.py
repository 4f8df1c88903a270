"""Text survives tokenization byte for byte, and the ids are those that SentencePiece gives."""

import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer_module.conftest import TEXT
from trainer_module.tokenization import Tokenizer, escape_text

AWKWARD = [
    "",
    " ",
    "\n",
    "   leading and trailing   ",
    "tab\tnew\nline\r\nCRLF\r",
    "한국어 텍스트",
    "\ufe30\u0149 \u00e9 e\u0301",
    "😀👩‍👩‍👧",
    "\u2581 the marker \u2581\u2581 itself",
    "\x1a \x1aa \x1ab \x1a\x1a \x1a\u2581",
    "<s> </s> <pad> <unk> <0x41>",
    "x" * 5000,
]


def round_trip(tokenizer, texts):
    return [text.decode() for text in tokenizer.text(tokenizer.document(tf.constant(texts))).numpy()]


def test_awkward_texts_round_trip(tokenizer_model):
    assert round_trip(Tokenizer(tokenizer_model), AWKWARD) == AWKWARD


def test_any_text_round_trips(tokenizer_model):
    tokenizer = Tokenizer(tokenizer_model)

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
    def check(texts):
        assert round_trip(tokenizer, texts) == texts

    check()


def test_a_megabyte_in_one_line_round_trips(tokenizer_model):
    line = TEXT.replace("\n", " ") * 10_000
    assert len(line) > 1_000_000
    assert round_trip(Tokenizer(tokenizer_model), [line]) == [line]


def test_ids_are_bos_pieces_eos_and_never_unknown(tokenizer_model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer_model)
    documents = Tokenizer(tokenizer_model).document(tf.constant([*AWKWARD, TEXT])).to_list()
    for text, ids in zip([*AWKWARD, TEXT], documents, strict=True):
        assert ids == [2, *processor.encode(escape_text(text)), 3]
        assert 1 not in ids


def test_special_tokens_and_bytes_have_their_fixed_ids(tokenizer_model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer_model)
    assert [processor.id_to_piece(i) for i in range(4)] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert [processor.id_to_piece(4 + byte) for byte in (0, 65, 255)] == ["<0x00>", "<0x41>", "<0xFF>"]
    assert processor.get_piece_size() == 300


def test_a_prompt_has_no_end(tokenizer_model):
    tokenizer = Tokenizer(tokenizer_model)
    (document,), (prompt,) = (f(tf.constant([TEXT])).to_list() for f in (tokenizer.document, tokenizer.prompt))
    assert prompt == document[:-1]


def test_special_tokens_in_the_output_give_no_text(tokenizer_model):
    tokenizer = Tokenizer(tokenizer_model)
    (ids,) = tokenizer.pieces(tf.constant(["def add"])).to_list()
    with_specials = tf.ragged.constant([[2, 0, *ids, 3, 0, 0]], dtype=tf.int32)
    assert tokenizer.text(with_specials).numpy().tolist() == [b"def add"]
