"""One training step: accumulate over microbatches, divide once, clip, update.

    loss sum, gradient sums, token count  <-  every microbatch      (compiled)
    weights, moments                      <-  sums / token count    (compiled)

Between the two is the only place where workers would meet: sums add, so one all-reduce there makes N
workers equal to one, as accumulation over k microbatches equals one batch k times as large.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf

from trainer_module import loss as losses
from trainer_module import model, optimizer
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.parameters import init, parameter_table


class Sums(NamedTuple):
    """What a step needs to know of its rows."""

    loss: tf.Tensor
    """Summed loss in nats."""

    num_tokens: tf.Tensor
    """Tokens that were predicted, float32 (exact up to 2^24 a worker and step)."""

    gradients: dict[str, tf.Tensor]
    """Of the summed loss, by parameter name, float32."""


class StepResult(NamedTuple):
    """Scalars of one step, still on the device: reading them is what waits for the step."""

    loss: tf.Tensor
    """Mean loss per predicted token, nats."""

    num_tokens: tf.Tensor
    grad_norm: tf.Tensor
    """Global norm of the mean gradient, before clipping."""

    learning_rate: tf.Tensor


class TrainState:
    """Everything that a step changes: weights, moments, step. Variables live here and nowhere else."""

    def __init__(self, config: ModelConfig, seed: int):
        initial = init(config, seed)
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        """Updates made so far."""
        self.params = {name: tf.Variable(value, name=name) for name, value in initial.items()}
        self.first_moments = self._zeros(initial, "first_moment")
        self.second_moments = self._zeros(initial, "second_moment")

    @staticmethod
    def _zeros(like: Mapping[str, tf.Tensor], kind: str) -> dict[str, tf.Variable]:
        return {
            name: tf.Variable(tf.zeros_like(value), trainable=False, name=f"{kind}/{name}")
            for name, value in like.items()
        }

    def variables(self) -> dict[str, tf.Variable]:
        """Every variable under the name that it has in a checkpoint."""
        named = {"step": self.step}
        named |= {f"params/{name}": variable for name, variable in self.params.items()}
        named |= {f"first_moments/{name}": variable for name, variable in self.first_moments.items()}
        named |= {f"second_moments/{name}": variable for name, variable in self.second_moments.items()}
        return named


def accumulate(
    config: ModelConfig, params: Mapping[str, tf.Tensor], token_ids: tf.Tensor, segment_ids: tf.Tensor
) -> Sums:
    """Sums over microbatches, one of them in memory at a time.

    Args:
      params: by name.
      token_ids, segment_ids: [num_microbatches, rows, seq_len + 1] int32.
    """
    if token_ids.shape[0] == 1:
        return _microbatch_sums(config, params, token_ids[0], segment_ids[0])
    names = list(params)

    def body(index: tf.Tensor, loss: tf.Tensor, count: tf.Tensor, *gradients: tf.Tensor) -> tuple[tf.Tensor, ...]:
        part = _microbatch_sums(config, params, token_ids[index], segment_ids[index])
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
    """Divides by the token count, clips, and assigns new weights, moments and step."""
    divisor = tf.maximum(sums.num_tokens, 1.0)  # no token at all: the gradient is 0, not NaN
    gradients = {name: value / divisor for name, value in sums.gradients.items()}
    norm = optimizer.global_norm(gradients)
    if train.clip_norm is not None:
        scale = tf.minimum(1.0, train.clip_norm / tf.maximum(norm, 1e-12))
        gradients = {name: value * scale for name, value in gradients.items()}
    step = state.step + 1
    params, first, second = optimizer.adamw(
        train,
        parameter_table(model_config),
        step,
        {name: tf.convert_to_tensor(variable) for name, variable in state.params.items()},
        gradients,
        {name: tf.convert_to_tensor(variable) for name, variable in state.first_moments.items()},
        {name: tf.convert_to_tensor(variable) for name, variable in state.second_moments.items()},
    )
    for variables, values in ((state.params, params), (state.first_moments, first), (state.second_moments, second)):
        for name, variable in variables.items():
            variable.assign(values[name])
    state.step.assign(step)
    return StepResult(sums.loss / divisor, sums.num_tokens, norm, optimizer.learning_rate(train, step))


def make_train_step(
    model_config: ModelConfig, train: TrainConfig, state: TrainState
) -> Callable[[tf.Tensor, tf.Tensor], StepResult]:
    """The step as one compiled function of (token_ids, segment_ids), each [global_batch_size, seq_len + 1] int32."""
    rows = train.global_batch_size // train.num_microbatches
    shape = [train.num_microbatches, rows, model_config.seq_len + 1]
    compiled = train.compile == "xla"
    names = list(state.params)

    @tf.function(jit_compile=compiled, autograph=False)
    def compiled_accumulate(values: list[tf.Tensor], token_ids: tf.Tensor, segment_ids: tf.Tensor) -> Sums:
        return accumulate(model_config, dict(zip(names, values, strict=True)), token_ids, segment_ids)

    @tf.function(jit_compile=compiled, autograph=False)
    def compiled_update(sums: Sums) -> StepResult:
        return update(train, model_config, state, sums)

    row_batch = tf.TensorSpec([train.global_batch_size, model_config.seq_len + 1], tf.int32)

    @tf.function(input_signature=[row_batch, row_batch], autograph=False)
    def train_step(token_ids: tf.Tensor, segment_ids: tf.Tensor) -> StepResult:
        values = [tf.convert_to_tensor(state.params[name]) for name in names]
        sums = compiled_accumulate(values, tf.reshape(token_ids, shape), tf.reshape(segment_ids, shape))
        return compiled_update(sums)

    return train_step


def make_eval_step(
    model_config: ModelConfig, train: TrainConfig, state: TrainState, rows: int
) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
    """Summed loss and token count of (token_ids, segment_ids), each [rows, seq_len + 1] int32, without gradients."""
    row_batch = tf.TensorSpec([rows, model_config.seq_len + 1], tf.int32)

    @tf.function(jit_compile=train.compile == "xla", autograph=False, input_signature=[row_batch, row_batch])
    def eval_step(token_ids: tf.Tensor, segment_ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        params = {name: tf.convert_to_tensor(variable) for name, variable in state.params.items()}
        hidden, targets, counted = _predictions(model_config, params, token_ids, segment_ids)
        nll, _ = losses.token_losses(hidden, model.head_weights(model_config, params), targets, counted)
        return tf.reduce_sum(nll), tf.reduce_sum(tf.cast(counted, tf.float32))

    return eval_step


def _microbatch_sums(
    config: ModelConfig, params: Mapping[str, tf.Tensor], token_ids: tf.Tensor, segment_ids: tf.Tensor
) -> Sums:
    """Loss, count and gradients of one microbatch [rows, seq_len + 1]."""
    params = dict(params)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(params)
        hidden, targets, counted = _predictions(config, params, token_ids, segment_ids)
        loss = losses.summed_loss(hidden, model.head_weights(config, params), targets, counted)
    gradients = tape.gradient(loss, params)
    dense = {name: tf.convert_to_tensor(value) for name, value in gradients.items()}
    return Sums(loss, tf.reduce_sum(tf.cast(counted, tf.float32)), dense)


def _predictions(
    config: ModelConfig, params: Mapping[str, tf.Tensor], token_ids: tf.Tensor, segment_ids: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Hidden states [N, D], targets [N], counted [N] of rows [B, seq_len + 1]; N = B x seq_len."""
    targets, counted = losses.targets_of(token_ids, segment_ids)
    hidden = model.hidden_states(config, params, token_ids[:, :-1], segment_ids[:, :-1])
    flat = tf.reshape(hidden, [token_ids.shape[0] * (token_ids.shape[1] - 1), config.width])
    return flat, tf.reshape(targets, [-1]), tf.reshape(counted, [-1])
