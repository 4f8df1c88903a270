"""Every token but the first is scored once, with the context that the windows promise."""

import numpy as np
import pytest
import tensorflow as tf

from trainer_module import model, scoring
from trainer_module.parameters import init

LENGTHS = [2, 17, 18, 29, 30, 0, 100, 5, 1]
"""Context 16, stride 12: around the ends of the first and second window, and far beyond."""


@pytest.fixture
def documents():
    random = np.random.default_rng(0)
    return [random.integers(4, 300, length).tolist() for length in LENGTHS]


def reference(config, params, document):
    """One prediction at a time: from the start of its window, as the module's docstring says."""
    nll, hits = 0.0, 0
    for target in range(1, len(document)):
        start = 0
        while target > start + config.seq_len:
            start += scoring.stride(config)
        inputs = tf.constant([document[start:target]])
        hidden = model.hidden_states(config, params, inputs, tf.ones_like(inputs))
        logits = model.output_logits(config, params, hidden)[0, -1]
        nll -= float(tf.nn.log_softmax(logits)[document[target]])
        hits += int(tf.argmax(logits)) == document[target]
    return nll, hits


def test_scores_equal_one_prediction_at_a_time(tiny, documents, monkeypatch):
    params = init(tiny, 0)
    monkeypatch.setattr(scoring, "TOKENS_AT_ONCE", 48)  # three windows a round: several rounds, the last not full
    scores = scoring.score(tiny, params, tf.ragged.constant(documents, dtype=tf.int32))
    expected = [reference(tiny, params, document) for document in documents]
    np.testing.assert_allclose(scores.nll, [nll for nll, _ in expected], rtol=1e-5, atol=1e-5)
    assert scores.num_correct.numpy().tolist() == [hits for _, hits in expected]
    assert scores.num_tokens.numpy().tolist() == [max(length - 1, 0) for length in LENGTHS]


def test_a_document_scores_the_same_alone(tiny, documents):
    params = init(tiny, 0)
    together = scoring.score(tiny, params, tf.ragged.constant(documents, dtype=tf.int32)).nll.numpy()
    for row, document in enumerate(documents):
        alone = scoring.score(tiny, params, tf.ragged.constant([document], dtype=tf.int32, ragged_rank=1))
        np.testing.assert_allclose(alone.nll, [together[row]], rtol=1e-5)


def test_no_documents_give_no_scores(tiny):
    empty = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), tf.zeros([0], tf.int64))
    scores = tf.function(lambda: scoring.score(tiny, init(tiny, 0), empty))()
    assert [field.shape for field in scores] == [(0,), (0,), (0,)]
