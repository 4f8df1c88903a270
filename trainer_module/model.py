"""The decoder-only transformer as pure functions over a dictionary of named tensors.

    params = init(config, seed)                                   # trainer_module.parameters
    hidden = hidden_states(config, params, token_ids, segment_ids)
    logits = output_logits(config, params, hidden)

Variables exist only where training and serving keep them. Notation: B batch, T time, D width, V
vocabulary, H heads, K heads of keys and values, E features per head, M features inside the MLP.
"""

from collections.abc import Callable, Mapping

import tensorflow as tf

from trainer_module import attention
from trainer_module.config import ModelConfig

Params = Mapping[str, tf.Tensor]
Attend = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""(query [B, T, H, E], key [B, T, K, E], value [B, T, K, E]) -> [B, T, H, E]."""


def hidden_states(config: ModelConfig, params: Params, token_ids: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
    """Runs every block over packed rows.

    Args:
      params: every parameter of `parameter_table(config)`, by name.
      token_ids: [B, T] int32, T at most `config.seq_len`.
      segment_ids: [B, T] int32; a token sees only earlier tokens of its own segment.

    Returns:
      [B, T, D], normalized, ready for `output_logits`.
    """
    positions = attention.document_positions(segment_ids)
    phases = rotary(config, positions)

    def attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        return attention.packed_attention(query, key, value, segment_ids)

    hidden = embed(config, params, token_ids, positions)
    for layer in range(config.num_layers):
        hidden = block(config, block_params(params, layer), hidden, phases, attend)
    return normalize(config, params, "final_norm", hidden)


def embed(config: ModelConfig, params: Params, token_ids: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """[B, T] ids and positions -> [B, T, D]."""
    hidden = tf.gather(params["embedding"], token_ids)
    if config.position == "learned":
        hidden += tf.gather(params["position"], positions)
    return hidden


def rotary(config: ModelConfig, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor] | None:
    """Rotary phases of the positions [B, T], or None where the model has learned positions."""
    if config.position == "learned":
        return None
    return attention.rope_phases(positions, config.head_dim, config.rope_theta)


def block_params(params: Params, layer: int) -> dict[str, tf.Tensor]:
    """The parameters of one block, by their name inside it."""
    prefix = f"blocks/{layer}/"
    return {name.removeprefix(prefix): value for name, value in params.items() if name.startswith(prefix)}


def block(
    config: ModelConfig,
    params: Params,
    hidden: tf.Tensor,
    phases: tuple[tf.Tensor, tf.Tensor] | None,
    attend: Attend,
) -> tf.Tensor:
    """One pre-norm block: attention, then MLP, each added to the residual stream.

    Args:
      params: of this block alone (`block_params`).
      hidden: [B, T, D].
      phases: rotary phases of the T positions, or None.
      attend: how queries meet keys and values; packed rows and cached generation differ here alone.

    Returns:
      [B, T, D].
    """
    inputs = normalize(config, params, "attention_norm", hidden)
    query = _with_bias(params, "query", _project_heads(inputs, params["query"]))
    key = _with_bias(params, "key", _project_heads(inputs, params["key"]))
    value = _with_bias(params, "value", _project_heads(inputs, params["value"]))
    if phases is not None:
        query, key = attention.rotate(query, phases), attention.rotate(key, phases)
    mixed = attend(query, key, value)  # [B, T, H, E]
    heads, head_dim = params["out"].shape[0], params["out"].shape[1]
    flat = tf.reshape(mixed, tf.concat([tf.shape(mixed)[:2], [heads * head_dim]], axis=0))
    out = _matmul(flat, tf.reshape(params["out"], [heads * head_dim, config.width]))
    hidden += _with_bias(params, "out", out)

    inputs = normalize(config, params, "mlp_norm", hidden)
    inner = _with_bias(params, "up", _matmul(inputs, params["up"]))  # [B, T, M]
    inner = tf.nn.silu(_matmul(inputs, params["gate"])) * inner if config.mlp == "swiglu" else _gelu(inner)
    return hidden + _with_bias(params, "down", _matmul(inner, params["down"], transpose_b=True))


def normalize(config: ModelConfig, params: Params, name: str, hidden: tf.Tensor) -> tf.Tensor:
    """RMSNorm (arXiv 1910.07467) or LayerNorm over the last dimension, computed in float32."""
    wide = tf.cast(hidden, tf.float32)
    if config.norm == "layernorm":
        wide -= tf.reduce_mean(wide, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True)
    normal = wide * tf.math.rsqrt(variance + config.norm_epsilon) * params[f"{name}/scale"]
    if config.norm == "layernorm":
        normal += params[f"{name}/bias"]
    return tf.cast(normal, hidden.dtype)


def head_weights(config: ModelConfig, params: Params) -> tf.Tensor:
    """[V, D]: the embedding where tied, else the head's own."""
    return params["embedding"] if config.tie_embeddings else params["head"]


def output_logits(config: ModelConfig, params: Params, hidden: tf.Tensor) -> tf.Tensor:
    """[..., D] -> [..., V], float32. Training uses `trainer_module.loss` instead, which never holds them whole."""
    return tf.cast(tf.matmul(hidden, head_weights(config, params), transpose_b=True), tf.float32)


def _project_heads(inputs: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """[B, T, D] x [D, heads, E] -> [B, T, heads, E], as one plain matmul."""
    width, heads, head_dim = weights.shape
    flat = _matmul(inputs, tf.reshape(weights, [width, heads * head_dim]))
    return tf.reshape(flat, tf.concat([tf.shape(inputs)[:2], [heads, head_dim]], axis=0))


def _matmul(inputs: tf.Tensor, weights: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """[B, T, X] x [X, Y] -> [B, T, Y], flattened to two dimensions, which every backend does best."""
    shape = tf.shape(inputs)
    flat = tf.matmul(tf.reshape(inputs, [-1, inputs.shape[-1]]), weights, transpose_b=transpose_b)
    return tf.reshape(flat, [shape[0], shape[1], flat.shape[-1]])


def _with_bias(params: Params, name: str, features: tf.Tensor) -> tf.Tensor:
    bias = params.get(f"{name}_bias")
    return features if bias is None else features + bias


def _gelu(inputs: tf.Tensor) -> tf.Tensor:
    """The tanh approximation, as in GPT-2."""
    return tf.nn.gelu(inputs, approximate=True)
