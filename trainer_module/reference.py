"""What the trainer's own forward pass says of some rows: that by which an exported model is judged.

`reference.npz`, beside the training log: `token_ids`, `segment_ids` [R, T + 1] int32, the first rows of the eval
split; `nll` [R, T] float32, -log p of every target that counts, nats, 0 elsewhere. It is written where the trained
weights are, from them, before anything is saved, loaded or served.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from trainer_module import loss, model, rows_dataset
from trainer_module.config import ModelConfig

REFERENCE_NAME = "reference.npz"
NUM_ROWS = 8
"""Enough to hold several documents, cut and whole; few enough to cost nothing."""


def write_reference(folder: str | Path, config: ModelConfig, params: Mapping[str, tf.Tensor], rows: Path) -> None:
    """Writes `reference.npz`.

    Args:
      folder: exists.
      params: trained values by name.
      rows: folder of packed rows.
    """
    reader = rows_dataset.RowReader(rows)
    count = min(NUM_ROWS, reader.num_rows)
    token_ids, segment_ids = next(iter(rows_dataset.evaluation_batches(reader, count, count)))
    # On an accelerator short products would hide in their own rounding what the comparison looks for.
    short_products = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        nll = _nll(config, params, token_ids, segment_ids)
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(short_products)
    with (Path(folder) / REFERENCE_NAME).open("wb") as file:
        np.savez(file, token_ids=token_ids.numpy(), segment_ids=segment_ids.numpy(), nll=nll)


def _nll(
    config: ModelConfig, params: Mapping[str, tf.Tensor], token_ids: tf.Tensor, segment_ids: tf.Tensor
) -> np.ndarray:
    """[R, T] float32."""

    @tf.function(autograph=False)
    def forward(params: Mapping[str, tf.Tensor], token_ids: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        hidden = model.hidden_states(config, params, token_ids[:, :-1], segment_ids[:, :-1])
        targets, counted = loss.targets_of(token_ids, segment_ids)
        size = targets.shape[0] * targets.shape[1]
        nll, _ = loss.token_losses(
            tf.reshape(hidden, [size, config.width]),
            model.head_weights(config, params),
            tf.reshape(targets, [size]),
            tf.reshape(counted, [size]),
        )
        return tf.reshape(nll, targets.shape)

    values: np.ndarray = forward(dict(params), token_ids, segment_ids).numpy()
    return values
