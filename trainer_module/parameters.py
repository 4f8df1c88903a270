"""The table of parameters: for every weight its name, shape, logical axes, decay and initial value.

Everything that needs to know a weight's place reads it here: initialization, optimizer, checkpoint,
export, parallel layouts. Notation: V vocabulary, D width, L layers, H heads, K heads of keys and
values, E features per head, M features inside the MLP, T sequence length.
"""

import dataclasses
import hashlib
import math
from typing import Literal

import tensorflow as tf

from trainer_module.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One weight."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    """Logical name of each dimension: vocab, embed, heads, kv_heads, head_dim, mlp, position."""

    initializer: Literal["normal", "zeros", "ones"] = "normal"
    stddev: float = 0.0
    decays: bool = False
    """Matrices inside the blocks, and a head of its own, decay; norms, biases and embeddings do not."""

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


def parameter_table(config: ModelConfig) -> dict[str, Parameter]:
    """Every parameter of the model by name, in a fixed order."""
    width, heads, kv_heads, head_dim = config.width, config.num_heads, config.kv_heads, config.head_dim
    hidden = config.hidden_width
    stddev = config.init_stddev
    # GPT-2's choice: the residual stream keeps its variance however many blocks add to it.
    residual_stddev = stddev / math.sqrt(2 * config.num_layers)
    table: list[Parameter] = [
        Parameter("embedding", (config.vocab_size, width), ("vocab", "embed"), stddev=stddev),
    ]
    if config.position == "learned":
        table.append(Parameter("position", (config.seq_len, width), ("position", "embed"), stddev=stddev))

    def matrix(name: str, shape: tuple[int, ...], axes: tuple[str, ...], deviation: float = stddev) -> None:
        table.append(Parameter(name, shape, axes, stddev=deviation, decays=True))

    def bias(name: str, shape: tuple[int, ...], axes: tuple[str, ...]) -> None:
        if config.use_bias:
            table.append(Parameter(name, shape, axes, "zeros"))

    def norm(name: str) -> None:
        table.append(Parameter(f"{name}/scale", (width,), ("embed",), "ones"))
        if config.norm == "layernorm":
            table.append(Parameter(f"{name}/bias", (width,), ("embed",), "zeros"))

    for layer in range(config.num_layers):
        block = f"blocks/{layer}"
        norm(f"{block}/attention_norm")
        matrix(f"{block}/query", (width, heads, head_dim), ("embed", "heads", "head_dim"))
        matrix(f"{block}/key", (width, kv_heads, head_dim), ("embed", "kv_heads", "head_dim"))
        matrix(f"{block}/value", (width, kv_heads, head_dim), ("embed", "kv_heads", "head_dim"))
        matrix(f"{block}/out", (heads, head_dim, width), ("heads", "head_dim", "embed"), residual_stddev)
        bias(f"{block}/query_bias", (heads, head_dim), ("heads", "head_dim"))
        bias(f"{block}/key_bias", (kv_heads, head_dim), ("kv_heads", "head_dim"))
        bias(f"{block}/value_bias", (kv_heads, head_dim), ("kv_heads", "head_dim"))
        bias(f"{block}/out_bias", (width,), ("embed",))
        if config.qk_norm:
            table.append(Parameter(f"{block}/query_norm/scale", (head_dim,), ("head_dim",), "ones"))
            table.append(Parameter(f"{block}/key_norm/scale", (head_dim,), ("head_dim",), "ones"))
        norm(f"{block}/mlp_norm")
        if config.mlp == "swiglu":
            matrix(f"{block}/gate", (width, hidden), ("embed", "mlp"))
        matrix(f"{block}/up", (width, hidden), ("embed", "mlp"))
        bias(f"{block}/up_bias", (hidden,), ("mlp",))
        # Kept as [D, M] and used transposed: XLA:CPU computes the gradient of that layout twice as fast.
        matrix(f"{block}/down", (width, hidden), ("embed", "mlp"), residual_stddev)
        bias(f"{block}/down_bias", (width,), ("embed",))
    norm("final_norm")
    if not config.tie_embeddings:
        matrix("head", (config.vocab_size, width), ("vocab", "embed"))
    return {parameter.name: parameter for parameter in table}


def count_parameters(config: ModelConfig) -> int:
    """Number of trained values."""
    return sum(parameter.size for parameter in parameter_table(config).values())


def init(config: ModelConfig, seed: int) -> dict[str, tf.Tensor]:
    """Initial values, float32. Each depends on the seed and on its parameter's name alone."""
    return {name: _initial_value(parameter, seed) for name, parameter in parameter_table(config).items()}


def _initial_value(parameter: Parameter, seed: int) -> tf.Tensor:
    if parameter.initializer == "zeros":
        return tf.zeros(parameter.shape)
    if parameter.initializer == "ones":
        return tf.ones(parameter.shape)
    name_seed = int.from_bytes(hashlib.sha256(parameter.name.encode()).digest()[:4], "little", signed=True)
    return tf.random.stateless_normal(parameter.shape, seed=[seed, name_seed], stddev=parameter.stddev)
