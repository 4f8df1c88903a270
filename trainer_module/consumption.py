"""What a training has consumed, as one number: the same for any number of workers and after any restart.

Each row of a batch gives a digest of its content and of its place in the global batch; their sum, modulo
2^64, is the digest of the step, whoever added up which part. A chain of those, kept with each checkpoint
and in the log, is the digest of everything up to a step: equal digests mean the same rows at the same steps.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from trainer_module.loss import count_targets

_LIMB_BITS = 8
_DIGEST_LIMBS = 64 // _LIMB_BITS
_COUNT_LIMBS = 5
SAID_SIZE = 2 + _COUNT_LIMBS + _DIGEST_LIMBS
"""S: float32 numbers that a process adds to a step's all-reduce."""

_MASK = (1 << 64) - 1
# Odd constants of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Said(NamedTuple):
    """What a process tells the others with a step; added up, what all of them said.

    As float32 numbers whole numbers travel in limbs of 8 bits, whose sums are exact for up to 65,536 workers.
    """

    stop_requests: int = 0
    """Processes that were asked to stop."""

    seconds: float = 0.0
    """Wall time of the training before this step, said by the chief alone."""

    num_tokens: int = 0
    """Tokens that the step predicts."""

    rows_digest: int = 0
    """Of the step's rows, below 2^64."""

    def encode(self) -> np.ndarray:
        """[S] float32."""
        limbs = _limbs(self.num_tokens, _COUNT_LIMBS) + _limbs(self.rows_digest, _DIGEST_LIMBS)
        return np.array([self.stop_requests, self.seconds, *limbs], np.float32)

    @classmethod
    def decode(cls, summed: np.ndarray | tf.Tensor) -> "Said":
        """From the sum [S] over processes."""
        stop, seconds, *limbs = (float(value) for value in np.asarray(summed))
        counted, digest = limbs[:_COUNT_LIMBS], limbs[_COUNT_LIMBS:]
        return cls(int(stop), seconds, _joined(counted), _joined(digest) & _MASK)


def said_of(
    token_ids: np.ndarray, segment_ids: np.ndarray, first_place: int, num_rows: int, stop: bool, seconds: float
) -> Said:
    """What a process says of its rows.

    Args:
      token_ids, segment_ids: [rows, seq_len + 1], of which the first `num_rows` are no filling.
      first_place: of the first of them in the global batch.
    """
    digest = digest_of_rows(token_ids[:num_rows], segment_ids[:num_rows], first_place)
    return Said(int(stop), seconds, count_targets(segment_ids), digest)


def digest_of_rows(token_ids: np.ndarray, segment_ids: np.ndarray, first_place: int) -> int:
    """Sum over rows of a digest of each, below 2^64.

    Args:
      token_ids, segment_ids: [rows, seq_len + 1].
      first_place: of the first row in the global batch.
    """
    if not len(token_ids):
        return 0
    length = token_ids.shape[1]
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is what is wanted
        weights = _mixed(np.arange(1, 2 * length + 1, dtype=np.uint64) * np.uint64(_GOLDEN)) | np.uint64(1)
        content = (token_ids.astype(np.uint64) * weights[:length]).sum(axis=1, dtype=np.uint64)
        content += (segment_ids.astype(np.uint64) * weights[length:]).sum(axis=1, dtype=np.uint64)
        places = np.arange(first_place + 1, first_place + 1 + len(token_ids), dtype=np.uint64)
        return int(_mixed(content ^ _mixed(places * np.uint64(_GOLDEN))).sum(dtype=np.uint64))


def chained(before: int, step_digest: int) -> int:
    """Digest of everything up to a step, from that before it and the step's own."""
    with np.errstate(over="ignore"):
        return int(_mixed(np.array([(before * _GOLDEN + step_digest + 1) & _MASK], np.uint64))[0])


def _mixed(values: np.ndarray) -> np.ndarray:
    """SplitMix64's finalizer: every bit of the input decides about every bit of the output."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND)
    return values ^ (values >> np.uint64(31))


def _limbs(value: int, count: int) -> list[int]:
    return [(value >> (_LIMB_BITS * place)) & ((1 << _LIMB_BITS) - 1) for place in range(count)]


def _joined(limbs: list[float]) -> int:
    return sum(round(limb) << (_LIMB_BITS * place) for place, limb in enumerate(limbs))
