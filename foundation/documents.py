"""The document: what ingest writes, what every data component reads.

A document is a `tf.Example` with exactly three bytes features. A transformed document is what
Transform makes of it. Feature names stand here and nowhere else.
"""

DOC_ID = "doc_id"
"""Stable and unique in the corpus; decides the split and the order of packing."""

TEXT = "text"
"""Valid UTF-8 without NUL."""

SOURCE = "source"
"""Where the document comes from: the key by which evaluation slices."""

DOCUMENT_FEATURES = (DOC_ID, TEXT, SOURCE)

TOKEN_IDS = "token_ids"
"""Transformed only. Variable length, int64: bos, the pieces of the text, eos."""

NUM_BYTES = "num_bytes"
"""Transformed only. int64: length of the text in UTF-8 bytes."""

DOCUMENT_FILE_PREFIX = "documents"
"""Shards of a span are named `documents-00000-of-00004.tfrecord`."""
