"""The special tokens, their ids and their order. Every tokenizer of the project starts with these four."""

PAD_ID = 0
"""Fills rows after the last document. Never predicted, never attended to."""

UNK_ID = 1
"""Never produced: byte fallback gives every text its ids. Present because SentencePiece wants one."""

BOS_ID = 2
"""Starts every document, so that the first piece of the text has something to be predicted from."""

EOS_ID = 3
"""Ends every document."""

NUM_SPECIAL_TOKENS = 4

NUM_BYTE_TOKENS = 256
"""Byte fallback pieces, which follow the special tokens: id of byte b is 4 + b."""

MIN_VOCAB_SIZE = NUM_SPECIAL_TOKENS + NUM_BYTE_TOKENS
