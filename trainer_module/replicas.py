"""Replicas: the devices, in one process or in many, that make one step together.

A strategy of TensorFlow's is only the transport here: variables live outside its scope, each process has
its own, and a step adds up what the replicas computed in one all-reduce and then does the same update
everywhere. So the weights of all processes stay equal, and N replicas equal one.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from foundation.errors import ConfigError
from trainer_module.config import DistributionConfig

CLUSTER_VARIABLE = "TF_CONFIG"
"""Environment variable with a process's cluster and its place in it, as TensorFlow defines it."""

_BYTES_PER_PACK = 64 << 20
"""Gradients are joined into pieces of about this size, each of which one collective adds up."""


class Replicas:
    """This process's part of them."""

    def __init__(self, strategy: tf.distribute.Strategy | None = None, rank: int = 0, num_workers: int = 1):
        """Replicas of a strategy; without one, the default device.

        Args:
          rank: number of this process; 0 is the chief, which alone writes.
          num_workers: processes.
        """
        self._strategy = strategy
        self.rank = rank
        self.num_workers = num_workers
        self.count: int = 1 if strategy is None else strategy.num_replicas_in_sync
        """Replicas in all processes."""
        self.num_local = self.count // num_workers
        """Replicas in this process."""
        self.first_local = rank * self.num_local
        """Number, among all, of the first of them."""
        self._totals: dict[tuple[np.dtype, int], Callable[[tf.Tensor], tf.Tensor]] = {}

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes checkpoints, logs and the model."""
        return self.rank == 0

    def sums(
        self, compute: Callable[[tf.Tensor | int], Sequence[tf.Tensor]], said: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Sums over all replicas, by one all-reduce. Inside a graph.

        Args:
          compute: from the number of a local replica to its float32 tensors; called once for each.
          said: [S] float32, of this process.

        Returns:
          The sums of what `compute` gave, and of what the processes said.
        """
        if self._strategy is None:
            return list(compute(0)), said

        def on_replica() -> list[tf.Tensor]:
            context = tf.distribute.get_replica_context()
            local = _local_index(context, self.num_local)
            own = said * tf.cast(tf.equal(local, 0), tf.float32)
            options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=_BYTES_PER_PACK)
            summed: list[tf.Tensor] = context.all_reduce(
                tf.distribute.ReduceOp.SUM, [own, *compute(local)], options=options
            )
            return summed

        own, *summed = self._first_local(self._strategy.run(on_replica))
        return summed, own

    def total(self, values: Sequence[float]) -> list[float]:
        """Sums over processes of some numbers, in float64; the same everywhere. Waits for all processes."""
        return [float(value) for value in self._total(np.array(values, np.float64))]

    def broadcast(self, value: Any = None) -> Any:
        """The chief's value, a JSON value, in every process; what others give does not matter."""
        if self.num_workers == 1:
            return value
        data = json.dumps(value).encode() if self.is_chief else b""
        size = int(self._total(np.array([len(data)], np.int32))[0])
        own = np.zeros(size, np.int32)
        own[: len(data)] = np.frombuffer(data, np.uint8)
        return json.loads(self._total(own).astype(np.uint8).tobytes())

    def barrier(self) -> None:
        """Returns when every process is here."""
        self.total([0.0])

    def _total(self, vector: np.ndarray) -> np.ndarray:
        if self.num_workers == 1:
            return vector
        key = (vector.dtype, len(vector))
        if key not in self._totals:
            self._totals[key] = self._make_total(*key)
        return np.asarray(self._totals[key](tf.constant(vector)).numpy())

    def _make_total(self, dtype: np.dtype, size: int) -> Callable[[tf.Tensor], tf.Tensor]:
        def on_replica(value: tf.Tensor) -> list[tf.Tensor]:
            context = tf.distribute.get_replica_context()
            own = value * tf.cast(tf.equal(_local_index(context, self.num_local), 0), value.dtype)
            return [context.all_reduce(tf.distribute.ReduceOp.SUM, own)]

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([size], tf.as_dtype(dtype))])
        def total(value: tf.Tensor) -> tf.Tensor:
            assert self._strategy is not None
            (summed,) = self._first_local(self._strategy.run(on_replica, (value,)))
            return summed

        return total

    def _first_local(self, values: Any) -> Any:
        """Of values that are the same on every replica, those of this process's first one."""
        assert self._strategy is not None
        return [self._strategy.experimental_local_results(value)[0] for value in values]


ONE = Replicas()
"""The default device of one process."""


def make_replicas(config: DistributionConfig) -> Replicas:
    """The replicas that a configuration asks for. Before anything else that TensorFlow does in this process.

    Raises:
      ConfigError: there are not so many devices; TF_CONFIG is missing or names another number of workers.
    """
    if config.strategy == "none":
        return Replicas()
    if config.strategy == "mirrored":
        return Replicas(tf.distribute.MirroredStrategy(_local_devices(config.num_devices)))
    rank, num_workers = place_in_cluster()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return Replicas(strategy, rank, num_workers)


def place_in_cluster() -> tuple[int, int]:
    """Rank and number of workers, from TF_CONFIG; a chief has rank 0, and comes before the workers.

    Raises:
      ConfigError: TF_CONFIG is not set or not understood.
    """
    text = os.environ.get(CLUSTER_VARIABLE, "")
    try:
        described = json.loads(text)
        cluster, task = described["cluster"], described["task"]
        chiefs = len(cluster.get("chief", []))
        num_workers = chiefs + len(cluster.get("worker", []))
        rank = int(task["index"]) + (chiefs if task["type"] == "worker" else 0)
        if task["type"] not in ("chief", "worker") or not 0 <= rank < num_workers:
            raise ValueError(f"task {task}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{CLUSTER_VARIABLE}: multi_worker training needs the cluster and this process's place in it, such as "
            '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}. '
            f"Received: {text!r} ({type(error).__name__}: {error})"
        ) from None
    return rank, num_workers


def _local_devices(wanted: int | None) -> list[str]:
    """Names of the accelerators, or, where there are none, of as many parts of the CPU."""
    if gpus := tf.config.list_physical_devices("GPU"):
        if wanted is not None and wanted > len(gpus):
            raise ConfigError(f"distribution.num_devices {wanted}: this machine has {len(gpus)} accelerators; lower it")
        return [device.name for device in tf.config.list_logical_devices("GPU")[:wanted]]
    count = wanted or 1
    (cpu,) = tf.config.list_physical_devices("CPU")
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError as error:
        raise ConfigError(
            f"distribution.num_devices {count}: the CPU cannot be divided any more in this process ({error}); set "
            "distribution.launcher: local"
        ) from error
    return [device.name for device in tf.config.list_logical_devices("CPU")]


def _local_index(context: Any, num_local: int) -> tf.Tensor | int:
    """Number of a replica among those of its process."""
    if num_local == 1:
        return 0
    return context.replica_id_in_sync_group % num_local
