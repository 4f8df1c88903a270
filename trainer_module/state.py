"""What a training changes: weights, moments, counters. Variables live here and nowhere else."""

from collections.abc import Mapping

import tensorflow as tf

from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.optimizer import takes_muon
from trainer_module.parameters import init, parameter_table
from trainer_module.precision import LossScale

Variables = dict[str, tf.Variable]


class TrainState:
    """Every variable of a training. All of it is in a checkpoint; nothing else is needed to go on."""

    def __init__(self, config: ModelConfig, train: TrainConfig):
        """Makes the initial state, which `train.seed` decides."""
        initial = init(config, train.seed)
        table = parameter_table(config)
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        """Batches taken so far."""
        self.num_updates = tf.Variable(0, dtype=tf.int64, trainable=False, name="num_updates")
        """Updates made so far: steps but those whose gradient was not finite."""
        self.params: Variables = {name: tf.Variable(value, name=name) for name, value in initial.items()}
        self.first_moments = _zeros(initial, "first_moment")
        adam = {name: value for name, value in initial.items() if not takes_muon(train, table[name])}
        self.second_moments = _zeros(adam, "second_moment")
        self.averages: Variables = {}
        """Running means of the weights; empty without `ema_decay`."""
        if train.ema_decay is not None:
            self.averages = {
                name: tf.Variable(value, trainable=False, name=f"average/{name}") for name, value in initial.items()
            }
        self.loss_scale = LossScale(train) if train.precision == "float16" else None

    def groups(self) -> dict[str, Variables]:
        """The variables that belong to parameters, by kind and parameter name."""
        groups = {
            "params": self.params,
            "first_moments": self.first_moments,
            "second_moments": self.second_moments,
        }
        return groups | ({"averages": self.averages} if self.averages else {})

    def result(self) -> Variables:
        """The weights that are validated and exported: their running means if those are kept."""
        return self.averages or self.params

    def variables(self) -> Variables:
        """Every variable under the name that it has in a checkpoint."""
        named = {"step": self.step, "num_updates": self.num_updates}
        for kind, group in self.groups().items():
            named |= {f"{kind}/{name}": variable for name, variable in group.items()}
        if self.loss_scale is not None:
            named |= self.loss_scale.variables()
        return named


def _zeros(like: Mapping[str, tf.Tensor], kind: str) -> Variables:
    return {
        name: tf.Variable(tf.zeros_like(value), trainable=False, name=f"{kind}/{name}") for name, value in like.items()
    }
