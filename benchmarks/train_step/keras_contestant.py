"""The same model in Keras 3 with `fit`, as its users write it: `keras-fit`; and KerasHub's GPT-2: `kerashub-fit`.

`fit` compiles by XLA where Keras decides so (`jit_compile="auto"`). Neither masks documents nor sums over
chunks: both hold all logits.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from benchmarks.train_step import turns


class Positions(layers.Layer):
    """Adds a learned position to each token."""

    def __init__(self, length: int, width: int):
        super().__init__()
        self.table = self.add_weight(shape=(length, width), initializer=keras.initializers.RandomNormal(stddev=0.02))

    def call(self, hidden: Any) -> Any:
        """[B, T, D] -> [B, T, D]."""
        return hidden + self.table


def keras_model(shape: dict[str, int]) -> keras.Model:
    """GPT-2's shape with a tied head."""
    width, heads = shape["width"], shape["num_heads"]
    embedding = layers.ReversibleEmbedding(shape["vocab_size"], width)
    token_ids = layers.Input((shape["seq_len"],), dtype="int32")
    hidden = Positions(shape["seq_len"], width)(embedding(token_ids))
    for _ in range(shape["num_layers"]):
        inputs = layers.LayerNormalization(epsilon=1e-5)(hidden)
        hidden = hidden + layers.MultiHeadAttention(heads, width // heads)(inputs, inputs, use_causal_mask=True)
        inner = layers.Dense(4 * width)(layers.LayerNormalization(epsilon=1e-5)(hidden))
        hidden = hidden + layers.Dense(width)(keras.activations.gelu(inner, approximate=True))
    return keras.Model(token_ids, embedding(layers.LayerNormalization(epsilon=1e-5)(hidden), reverse=True))


def kerashub_model(shape: dict[str, int]) -> keras.Model:
    """KerasHub's GPT-2 backbone with its tied head."""
    import keras_hub

    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=shape["vocab_size"],
        num_layers=shape["num_layers"],
        num_heads=shape["num_heads"],
        hidden_dim=shape["width"],
        intermediate_dim=4 * shape["width"],
        dropout=0.0,
        max_sequence_length=shape["seq_len"],
    )
    token_ids = layers.Input((shape["seq_len"],), dtype="int32")
    hidden = backbone({"token_ids": token_ids, "padding_mask": keras.ops.ones_like(token_ids)})
    return keras.Model(token_ids, backbone.token_embedding(hidden, reverse=True))


def product(dtype: str) -> Callable[[], Any]:
    """A square matrix product."""
    left = tf.cast(tf.random.normal([turns.PEAK_SIZE, turns.PEAK_SIZE]), dtype)
    return lambda: tf.matmul(left, left)[0, 0].numpy()


def main(name: str, shape: dict[str, int]) -> None:
    """Trains in turns; a turn is one call of `fit`."""
    model = kerashub_model(shape) if name.startswith("kerashub") else keras_model(shape)
    optimizer = keras.optimizers.AdamW(
        turns.LEARNING_RATE,
        weight_decay=turns.WEIGHT_DECAY,
        beta_1=turns.BETAS[0],
        beta_2=turns.BETAS[1],
        epsilon=turns.EPSILON,
        global_clipnorm=turns.CLIP_NORM,
    )
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rows = turns.batch_of(shape)
    history: list[float] = []

    def steps(count: int) -> float:
        inputs, targets = np.tile(rows[:, :-1], (count, 1)), np.tile(rows[:, 1:], (count, 1))
        fitted = model.fit(inputs, targets, batch_size=shape["batch"], epochs=1, shuffle=False, verbose=0)
        history.append(fitted.history["loss"][-1])
        return history[-1]

    turns.take_turns(steps, product)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
