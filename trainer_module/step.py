"""One training step: accumulate over microbatches, divide once, clip, update.

    loss sum, gradient sums, token count  <-  every microbatch      (compiled)
    weights, moments                      <-  sums / token count    (compiled)

Between the two is the only place where replicas meet: sums add, so one all-reduce there makes N replicas
equal to one, as accumulation over k microbatches equals one batch k times as large. The token count that
divides is the global one, so it does not matter how tokens are spread over replicas.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from trainer_module import loss as losses
from trainer_module import model, optimizer, precision
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.consumption import SAID_SIZE
from trainer_module.parameters import parameter_table
from trainer_module.replicas import ONE, Replicas
from trainer_module.schedule import learning_rate
from trainer_module.state import TrainState


class Sums(NamedTuple):
    """What a step needs to know of its rows."""

    loss: tf.Tensor
    """Summed -log p in nats."""

    num_tokens: tf.Tensor
    """Tokens that were predicted, float32 (exact up to 2^24 a worker and step)."""

    gradients: dict[str, tf.Tensor]
    """Of the summed objective times `precision.gradient_factor`, by parameter name, float32."""


class StepResult(NamedTuple):
    """Scalars of one step, still on the device: reading them is what waits for the step."""

    loss: tf.Tensor
    """Mean -log p per predicted token, nats."""

    num_tokens: tf.Tensor
    grad_norm: tf.Tensor
    """Global norm of the mean gradient, before clipping; not finite where the update was skipped."""

    learning_rate: tf.Tensor
    loss_scale: tf.Tensor
    """With which the gradient was computed; 1 but for float16."""


class TrainStep:
    """The step as one compiled function, made by `make_train_step`."""

    def __init__(self, function: Callable[..., tuple[StepResult, tf.Tensor]]):
        self.function = function
        """The tf.function of (token_ids, segment_ids, said)."""
        self._silence = tf.zeros([SAID_SIZE])

    def __call__(self, token_ids: tf.Tensor, segment_ids: tf.Tensor) -> StepResult:
        """One step of this process's rows, each [local_rows, seq_len + 1] int32."""
        return self.function(token_ids, segment_ids, self._silence)[0]

    def and_tell(self, token_ids: tf.Tensor, segment_ids: tf.Tensor, said: np.ndarray) -> tuple[StepResult, tf.Tensor]:
        """As a call; also the sum [S] of what all processes said (`trainer_module.consumption.Said`)."""
        return self.function(token_ids, segment_ids, tf.constant(said))


class Share(NamedTuple):
    """The part of a global batch that a process takes."""

    first_place: int
    """In the global batch."""

    num_rows: int
    """With filling, where replicas do not divide the global batch: `filled_rows` may be fewer."""

    filled_rows: int
    """Rows that are no filling."""

    rows_per_replica: int
    rows_per_microbatch: int


def share_of(train: TrainConfig, replicas: Replicas) -> Share:
    """This process's share: replica r of R takes the r-th stretch of ceil(global_batch_size / R) rows, rounded up to
    whole microbatches."""
    per_microbatch = -(-train.global_batch_size // (replicas.count * train.num_microbatches))
    per_replica = per_microbatch * train.num_microbatches
    first = replicas.rank * replicas.num_local * per_replica
    rows = replicas.num_local * per_replica
    return Share(first, rows, max(0, min(rows, train.global_batch_size - first)), per_replica, per_microbatch)


def accumulate(
    config: ModelConfig,
    train: TrainConfig,
    params: Mapping[str, tf.Tensor],
    token_ids: tf.Tensor,
    segment_ids: tf.Tensor,
    factor: tf.Tensor | float = 1.0,
    dropout_seed: tf.Tensor | None = None,
) -> Sums:
    """Sums over microbatches, one of them in memory at a time.

    Args:
      params: by name.
      token_ids, segment_ids: [num_microbatches, rows, seq_len + 1] int32.
      factor: of the gradients (`precision.gradient_factor`).
      dropout_seed: [2] int32, of the step; each microbatch gets one of its own.
    """
    dtype = precision.compute_dtype(train)
    params = precision.cast_matrices(parameter_table(config), params, dtype)

    def sums_of(index: tf.Tensor | int) -> Sums:
        seed = None
        if dropout_seed is not None:
            seed = tf.random.experimental.stateless_fold_in(dropout_seed, index, alg="philox")
        computation = model.Computation(
            dtype, train.gradient_checkpointing, train.blocks_per_checkpoint, seed, train.compile == "fused"
        )
        return _microbatch_sums(config, train, params, token_ids[index], segment_ids[index], factor, computation)

    if token_ids.shape[0] == 1:
        return sums_of(0)
    names = list(params)

    def body(index: tf.Tensor, loss: tf.Tensor, count: tf.Tensor, *gradients: tf.Tensor) -> tuple[tf.Tensor, ...]:
        part = sums_of(index)
        added = [total + part.gradients[name] for total, name in zip(gradients, names, strict=True)]
        return (index + 1, loss + part.loss, count + part.num_tokens, *added)

    zeros = [tf.zeros(params[name].shape) for name in names]
    _, loss, count, *gradients = tf.while_loop(
        lambda index, *_: index < token_ids.shape[0],
        body,
        (0, 0.0, 0.0, *zeros),
        maximum_iterations=token_ids.shape[0],
    )
    return Sums(loss, count, dict(zip(names, gradients, strict=True)))


def update(train: TrainConfig, model_config: ModelConfig, state: TrainState, sums: Sums) -> StepResult:
    """Divides by the token count, clips, and assigns new weights, moments and step.

    A gradient that is not finite changes nothing but the step and, for float16, the loss scale.
    """
    divisor = tf.maximum(sums.num_tokens, 1.0)  # no token at all: the gradient is 0, not NaN
    factor = precision.gradient_factor(train, model_config, state.loss_scale)
    norm = optimizer.global_norm(sums.gradients) / (divisor * factor)
    finite = tf.math.is_finite(norm)
    scale = 1.0 / (divisor * factor)
    if train.clip_norm is not None:
        scale *= tf.minimum(1.0, train.clip_norm / tf.maximum(norm, 1e-12))
    step = state.step + 1
    rate = learning_rate(train, step)
    groups = state.groups()
    old = {kind: {name: tf.convert_to_tensor(value) for name, value in group.items()} for kind, group in groups.items()}

    def updated() -> dict[str, dict[str, tf.Tensor]]:
        gradients = {name: value * scale for name, value in sums.gradients.items()}
        optimized = optimizer.optimize(
            train,
            parameter_table(model_config),
            rate,
            state.num_updates + 1,
            old["params"],
            gradients,
            old["first_moments"],
            old["second_moments"],
        )
        new: dict[str, dict[str, tf.Tensor]] = optimized._asdict()
        if train.ema_decay is not None:
            new["averages"] = {
                name: value + (1.0 - train.ema_decay) * (new["params"][name] - value)
                for name, value in old["averages"].items()
            }
        return new

    new = tf.cond(finite, updated, lambda: old)
    for kind, group in groups.items():
        for name, variable in group.items():
            variable.assign(new[kind][name])
    result = StepResult(sums.loss / divisor, sums.num_tokens, norm, rate, precision.current_scale(state.loss_scale))
    precision.adapt_loss_scale(train, state.loss_scale, finite)
    state.step.assign(step)
    state.num_updates.assign_add(tf.cast(finite, tf.int64))
    return result


def make_train_step(
    model_config: ModelConfig, train: TrainConfig, state: TrainState, replicas: Replicas = ONE
) -> TrainStep:
    """The step of this process's share of a global batch (`share_of`).

    Args:
      train: with `compile` and `precision` chosen: neither is `auto`.
    """
    share = share_of(train, replicas)
    shape = [train.num_microbatches, share.rows_per_microbatch, model_config.seq_len + 1]
    compiled = _is_compiled(train)
    elementwise = train.compile in ("xla", "fused")
    names = list(state.params)

    @tf.function(jit_compile=compiled, autograph=False)
    def compiled_accumulate(
        values: list[tf.Tensor], token_ids: tf.Tensor, segment_ids: tf.Tensor, factor: tf.Tensor, seed: tf.Tensor
    ) -> Sums:
        params = dict(zip(names, values, strict=True))
        dropped = seed if model_config.dropout else None
        return accumulate(model_config, train, params, token_ids, segment_ids, factor, dropped)

    @tf.function(jit_compile=elementwise, autograph=False)
    def compiled_update(sums: Sums) -> StepResult:
        return update(train, model_config, state, sums)

    row_batch = tf.TensorSpec([share.num_rows, model_config.seq_len + 1], tf.int32)

    # One signature: another shape is an error, never a silent second compilation.
    @tf.function(input_signature=[row_batch, row_batch, tf.TensorSpec([SAID_SIZE], tf.float32)], autograph=False)
    def train_step(token_ids: tf.Tensor, segment_ids: tf.Tensor, said: tf.Tensor) -> tuple[StepResult, tf.Tensor]:
        values = [tf.convert_to_tensor(state.params[name]) for name in names]
        factor = precision.gradient_factor(train, model_config, state.loss_scale)
        step = state.step.value()

        def on_replica(local: tf.Tensor | int) -> list[tf.Tensor]:
            start = local * share.rows_per_replica
            own = [rows[start : start + share.rows_per_replica] for rows in (token_ids, segment_ids)]
            rows = [tf.reshape(values, shape) for values in own]
            seed = _dropout_seed(train, step, replicas.first_local + local)
            sums = compiled_accumulate(values, *rows, factor, seed)
            return [sums.loss, sums.num_tokens, *(sums.gradients[name] for name in names)]

        (loss, num_tokens, *gradients), heard = replicas.sums(on_replica, said)
        sums = Sums(loss, num_tokens, dict(zip(names, gradients, strict=True)))
        return compiled_update(sums), heard

    return TrainStep(train_step)


def make_eval_step(
    model_config: ModelConfig, train: TrainConfig, state: TrainState, rows: int
) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Summed loss and token count of (token_ids, segment_ids), each [rows, seq_len + 1] int32, without gradients.

    A plain graph in any case: a validation is too short to be worth a second compilation of the whole model.
    """
    row_batch = tf.TensorSpec([rows, model_config.seq_len + 1], tf.int32)
    computation = model.Computation(precision.compute_dtype(train))

    @tf.function(autograph=False, input_signature=[row_batch, row_batch])
    def eval_step(token_ids: tf.Tensor, segment_ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        params = {name: tf.convert_to_tensor(variable) for name, variable in state.result().items()}
        hidden, targets, counted = _predictions(model_config, params, token_ids, segment_ids, computation)
        nll, _ = losses.token_losses(hidden, model.head_weights(model_config, params), targets, counted)
        return tf.reduce_sum(nll), tf.reduce_sum(tf.cast(counted, tf.float32))

    return eval_step


def _microbatch_sums(
    config: ModelConfig,
    train: TrainConfig,
    params: Mapping[str, tf.Tensor],
    token_ids: tf.Tensor,
    segment_ids: tf.Tensor,
    factor: tf.Tensor | float,
    computation: model.Computation,
) -> Sums:
    """Loss, count and gradients of one microbatch [rows, seq_len + 1]."""
    params = dict(params)
    objective = losses.Objective(train.label_smoothing, train.z_loss)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(params)
        hidden, targets, counted = _predictions(config, params, token_ids, segment_ids, computation)
        loss = losses.summed_loss(
            hidden, model.head_weights(config, params), targets, counted, objective, computation.fused
        )
    gradients = tape.gradient(loss, params, output_gradients=tf.convert_to_tensor(factor, tf.float32))
    dense = {name: tf.cast(tf.convert_to_tensor(value), tf.float32) for name, value in gradients.items()}
    return Sums(loss, tf.reduce_sum(tf.cast(counted, tf.float32)), dense)


def _predictions(
    config: ModelConfig,
    params: Mapping[str, tf.Tensor],
    token_ids: tf.Tensor,
    segment_ids: tf.Tensor,
    computation: model.Computation,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Hidden states [N, D], targets [N], counted [N] of rows [B, seq_len + 1]; N = B x seq_len."""
    targets, counted = losses.targets_of(token_ids, segment_ids)
    hidden = model.hidden_states(config, params, token_ids[:, :-1], segment_ids[:, :-1], computation)
    flat = tf.reshape(hidden, [token_ids.shape[0] * (token_ids.shape[1] - 1), config.width])
    return flat, tf.reshape(targets, [-1]), tf.reshape(counted, [-1])


def _dropout_seed(train: TrainConfig, step: tf.Tensor, replica: tf.Tensor | int) -> tf.Tensor:
    """[2] int32, of one replica's step. The first replica's is that of a training without others."""
    seed = tf.stack([tf.constant(train.seed, tf.int32), tf.cast(step, tf.int32)])
    if isinstance(replica, int) and replica == 0:
        return seed
    folded = tf.random.experimental.stateless_fold_in(seed, replica, alg="philox")
    return tf.where(tf.equal(replica, 0), seed, folded)


def _is_compiled(train: TrainConfig) -> bool:
    """Whether XLA compiles the whole of it."""
    if train.compile == "auto" or train.precision == "auto":
        raise ValueError(
            f"compile {train.compile} and precision {train.precision} must be chosen before a step is made"
        )
    return train.compile == "xla"
