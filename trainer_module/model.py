"""The decoder-only transformer as pure functions over a dictionary of named tensors.

    params = init(config, seed)                                   # trainer_module.parameters
    hidden = hidden_states(config, params, token_ids, segment_ids)
    logits = output_logits(config, params, hidden)

Variables exist only where training and serving keep them. Notation: B batch, T time, D width, V
vocabulary, H heads, K heads of keys and values, E features per head, M features inside the MLP.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainer_module import attention
from trainer_module.config import ModelConfig
from trainer_module.fusion import region
from trainer_module.recompute import recomputed
from trainer_module.shapes import reshape, sizes_of

Params = Mapping[str, tf.Tensor]
Attend = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""(query [B, T, H, E], key [B, T, K, E], value [B, T, K, E]) -> [B, T, H, E]."""


@dataclasses.dataclass(frozen=True)
class Computation:
    """How a forward pass is computed; the default is what evaluation and serving do."""

    dtype: tf.DType = tf.float32
    """Of activations and matrix products; norms, phases and softmax are float32 in any case."""

    gradient_checkpointing: str = "none"
    """What the backward pass computes again: `none`, `attention` or `full`, as `TrainConfig` says."""

    blocks_per_checkpoint: int = 1
    """full: blocks that share one kept input."""

    dropout_seed: tf.Tensor | None = None
    """[2] int32: decides what dropout drops. None: nothing is dropped."""

    fused: bool = False
    """Elementwise parts, and attention, are regions that XLA compiles inside a graph (`trainer_module.fusion`)."""

    def elementwise(self, function: Callable[..., Any], **static: Any) -> Callable[..., Any]:
        """`function`, as a region if `fused`."""
        return region(function, **static) if self.fused else functools.partial(function, **static)

    def light(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, whose inside is computed again where everything but large products is."""
        return recomputed(function) if self.gradient_checkpointing == "attention" else function


INFERENCE = Computation()


def hidden_states(
    config: ModelConfig,
    params: Params,
    token_ids: tf.Tensor,
    segment_ids: tf.Tensor,
    computation: Computation = INFERENCE,
) -> tf.Tensor:
    """Runs every block over packed rows.

    Args:
      params: every parameter of `parameter_table(config)`, by name.
      token_ids: [B, T] int32, T at most `config.seq_len`.
      segment_ids: [B, T] int32; a token sees only earlier tokens of its own segment.
      computation: precision, dropout, and what is kept for the backward pass.

    Returns:
      [B, T, D] of `computation.dtype`, normalized, ready for `output_logits`.
    """
    positions = attention.document_positions(segment_ids)
    phases = rotary(config, positions)
    recompute = computation.gradient_checkpointing == "attention"

    def attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        return attention.packed_attention(query, key, value, segment_ids, recompute, computation.fused)

    def stretch(hidden: tf.Tensor, params_of_blocks: Sequence[Params], first: int) -> tf.Tensor:
        for layer, params_of_block in enumerate(params_of_blocks, start=first):
            seed = _fold_in(computation.dropout_seed, layer + 1)
            hidden = block(config, params_of_block, hidden, phases, attend, computation, seed)
        return hidden

    hidden = tf.cast(embed(config, params, token_ids, positions), computation.dtype)
    hidden = _dropout(hidden, config.dropout, _fold_in(computation.dropout_seed, 0))
    full = computation.gradient_checkpointing == "full"
    length = computation.blocks_per_checkpoint if full else config.num_layers
    for first in range(0, config.num_layers, length):
        layers = range(first, min(first + length, config.num_layers))
        params_of_blocks = [block_params(params, layer) for layer in layers]
        if full:
            run = recomputed(lambda hidden, blocks, first=first: stretch(hidden, blocks, first))
            hidden = run(hidden, params_of_blocks)
        else:
            hidden = stretch(hidden, params_of_blocks, first)
    return normalize(config, params, "final_norm", hidden, computation)


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
    computation: Computation = INFERENCE,
    dropout_seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """One pre-norm block: attention, then MLP, each added to the residual stream.

    Args:
      params: of this block alone (`block_params`).
      hidden: [B, T, D].
      phases: rotary phases of the T positions, or None.
      attend: how queries meet keys and values; packed rows and cached generation differ here alone.
      computation: of the whole pass.
      dropout_seed: [2] int32, of this block; None: nothing is dropped.

    Returns:
      [B, T, D].
    """
    project = computation.light(
        lambda hidden, params: _queries_keys_values(config, params, hidden, phases, computation)
    )
    expand = computation.light(lambda hidden, params: _expand(config, params, hidden, computation))
    contract = computation.light(lambda inner, params: _contract(params, inner, computation))

    mixed = attend(*project(hidden, params))  # [B, T, H, E]
    heads, head_dim = params["out"].shape[0], params["out"].shape[1]
    flat = reshape(mixed, [*sizes_of(mixed)[:2], heads * head_dim])
    out = _with_bias(params, "out", _matmul(flat, tf.reshape(params["out"], [heads * head_dim, config.width])))
    hidden += _dropout(out, config.dropout, _fold_in(dropout_seed, 0))

    out = contract(expand(hidden, params), params)
    return hidden + _dropout(out, config.dropout, _fold_in(dropout_seed, 1))


def _queries_keys_values(
    config: ModelConfig,
    params: Params,
    hidden: tf.Tensor,
    phases: tuple[tf.Tensor, tf.Tensor] | None,
    computation: Computation,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """[B, T, D] -> [B, T, H, E], [B, T, K, E], [B, T, K, E]."""
    inputs = normalize(config, params, "attention_norm", hidden, computation)
    query, key, value = (
        _with_bias(params, name, _project_heads(inputs, params[name])) for name in ("query", "key", "value")
    )
    if config.qk_norm:
        norm = computation.elementwise(_root_mean_square_norm, epsilon=config.norm_epsilon)
        query, key = norm(query, params["query_norm/scale"]), norm(key, params["key_norm/scale"])
    if phases is not None:
        rotate = computation.elementwise(attention.rotate)
        query, key = rotate(query, *phases), rotate(key, *phases)
    return query, key, value


def _expand(config: ModelConfig, params: Params, hidden: tf.Tensor, computation: Computation) -> list[tf.Tensor]:
    """The MLP's products before its activation, each [B, T, M]: of `up` and, for swiglu, of `gate`."""
    inputs = normalize(config, params, "mlp_norm", hidden, computation)
    names = ("up", "gate") if config.mlp == "swiglu" else ("up",)
    return [_with_bias(params, name, _matmul(inputs, params[name])) for name in names]


def _contract(params: Params, inner: list[tf.Tensor], computation: Computation) -> tf.Tensor:
    """Activation and second product: `_expand`'s result -> [B, T, D]."""
    activate = computation.elementwise(_swiglu if len(inner) == 2 else _gelu)
    return _with_bias(params, "down", _matmul(activate(*inner), params["down"], transpose_b=True))


def _swiglu(up: tf.Tensor, gate: tf.Tensor) -> tf.Tensor:
    return tf.nn.silu(gate) * up


def _gelu(inner: tf.Tensor) -> tf.Tensor:
    """The tanh approximation, as in GPT-2."""
    return tf.nn.gelu(inner, approximate=True)


def normalize(
    config: ModelConfig, params: Params, name: str, hidden: tf.Tensor, computation: Computation = INFERENCE
) -> tf.Tensor:
    """RMSNorm (arXiv 1910.07467) or LayerNorm over the last dimension, computed in float32."""
    scale = params[f"{name}/scale"]
    if config.norm == "rmsnorm":
        return computation.elementwise(_root_mean_square_norm, epsilon=config.norm_epsilon)(hidden, scale)
    norm = computation.elementwise(_layer_norm, epsilon=config.norm_epsilon)
    return norm(hidden, scale, params[f"{name}/bias"])


# The norms' gradients are written down, for more than speed: the stream has two uses then, norm and residual. With
# three, their gradients would meet in one AddN, which adds in the order in which it finds memory to reuse, and so
# not always in the same one: a graph would not give the same bits twice.


def _layer_norm(hidden: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor, epsilon: float) -> tf.Tensor:
    @tf.custom_gradient
    def norm(hidden: tf.Tensor, scale: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        wide = tf.cast(hidden, tf.float32)
        centered = wide - tf.reduce_mean(wide, axis=-1, keepdims=True)
        inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centered), axis=-1, keepdims=True) + epsilon)
        normal = centered * inverse

        def backward(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            upstream = tf.cast(upstream, tf.float32)
            scaled = upstream * scale
            away = scaled - tf.reduce_mean(scaled, axis=-1, keepdims=True)
            gradient = (away - normal * tf.reduce_mean(scaled * normal, axis=-1, keepdims=True)) * inverse
            return tf.cast(gradient, hidden.dtype), _over_rows(upstream * normal), _over_rows(upstream)

        return tf.cast(normal * scale + bias, hidden.dtype), backward

    return norm(hidden, scale, bias)


def _root_mean_square_norm(features: tf.Tensor, scale: tf.Tensor, epsilon: float) -> tf.Tensor:
    @tf.custom_gradient
    def norm(features: tf.Tensor, scale: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        wide = tf.cast(features, tf.float32)
        inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(wide), axis=-1, keepdims=True) + epsilon)
        normal = wide * inverse

        def backward(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            upstream = tf.cast(upstream, tf.float32)
            scaled = upstream * scale
            gradient = (scaled - normal * tf.reduce_mean(scaled * normal, axis=-1, keepdims=True)) * inverse
            return tf.cast(gradient, features.dtype), _over_rows(upstream * normal)

        return tf.cast(normal * scale, features.dtype), backward

    return norm(features, scale)


def _over_rows(values: tf.Tensor) -> tf.Tensor:
    """[..., D] -> [D], summed."""
    return tf.reduce_sum(tf.reshape(values, [-1, values.shape[-1]]), axis=0)


def head_weights(config: ModelConfig, params: Params) -> tf.Tensor:
    """[V, D]: the embedding where tied, else the head's own."""
    return params["embedding"] if config.tie_embeddings else params["head"]


def output_logits(config: ModelConfig, params: Params, hidden: tf.Tensor) -> tf.Tensor:
    """[..., D] -> [..., V], float32. Training uses `trainer_module.loss` instead, which never holds them whole."""
    head = tf.cast(head_weights(config, params), hidden.dtype)
    return tf.cast(tf.matmul(hidden, head, transpose_b=True), tf.float32)


def _project_heads(inputs: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """[B, T, D] x [D, heads, E] -> [B, T, heads, E], as one plain matmul."""
    width, heads, head_dim = weights.shape
    flat = _matmul(inputs, tf.reshape(weights, [width, heads * head_dim]))
    return reshape(flat, [*sizes_of(inputs)[:2], heads, head_dim])


def _matmul(inputs: tf.Tensor, weights: tf.Tensor, transpose_b: bool = False) -> tf.Tensor:
    """[B, T, X] x [X, Y] -> [B, T, Y] in the inputs' dtype; as two dimensions, which every backend does best."""
    weights = tf.cast(weights, inputs.dtype)
    flat = tf.matmul(tf.reshape(inputs, [-1, inputs.shape[-1]]), weights, transpose_b=transpose_b)
    return reshape(flat, [*sizes_of(inputs)[:2], flat.shape[-1]])


def _with_bias(params: Params, name: str, features: tf.Tensor) -> tf.Tensor:
    """Adds `NAME_bias`, of the shape of the features' last dimensions, where the model has biases."""
    bias = params.get(f"{name}_bias")
    if bias is None:
        return features
    # An op of its own, since the gradient of a broadcast sum is slow; it knows only one trailing dimension.
    bias = tf.reshape(tf.cast(bias, features.dtype), [-1])
    flat = tf.reshape(features, [-1, bias.shape[0]])
    return reshape(tf.nn.bias_add(flat, bias), sizes_of(features))


def _dropout(features: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Zeroes a share `rate` of the features and scales the rest so that the mean stays."""
    if seed is None or rate == 0.0:
        return features
    uniform = tf.random.stateless_uniform(tf.shape(features), seed, alg="philox")
    return tf.where(uniform >= rate, features / (1.0 - rate), tf.zeros_like(features))


def _fold_in(seed: tf.Tensor | None, number: int) -> tf.Tensor | None:
    """A seed [2] of its own for each number."""
    return None if seed is None else tf.random.experimental.stateless_fold_in(seed, number, alg="philox")
