"""Settings of the server."""

from dataclasses import dataclass, field
from pathlib import Path

from foundation.errors import ConfigError


@dataclass(frozen=True)
class Batching:
    """The knobs of TensorFlow Serving's batching, by its names."""

    max_batch_size: int = 32
    """Rows at most."""

    batch_timeout_micros: int = 1000
    """How long the first request of a batch waits for others; 0: not at all."""

    num_batch_threads: int = 4
    """Batches that run at once."""

    max_enqueued_batches: int = 100
    """Full batches that may wait; what comes beyond is refused."""

    allowed_batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    """A batch is filled up to the next of these, so that few shapes occur. Increasing; the last is max_batch_size."""

    def __post_init__(self) -> None:
        sizes = self.allowed_batch_sizes
        for name in ("max_batch_size", "num_batch_threads", "max_enqueued_batches"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1. Received: {name}={getattr(self, name)}")
        if self.batch_timeout_micros < 0:
            raise ConfigError(
                f"batch_timeout_micros must not be negative. Received: batch_timeout_micros={self.batch_timeout_micros}"
            )
        if not sizes or list(sizes) != sorted(set(sizes)) or sizes[0] < 1 or sizes[-1] != self.max_batch_size:
            raise ConfigError(
                "allowed_batch_sizes must increase and end with max_batch_size "
                f"({self.max_batch_size}). Received: allowed_batch_sizes={list(sizes)}"
            )


def read_batching(path: str | Path) -> Batching:
    """Reads TensorFlow Serving's `--batching_parameters_file`.

    Raises:
      ConfigError: it cannot be read, or a value is impossible.
    """
    from google.protobuf import text_format

    from serving.batching_proto import batching_parameters

    try:
        message = text_format.Parse(Path(path).read_text(encoding="utf-8"), batching_parameters())
    except (OSError, ValueError, text_format.ParseError) as error:
        raise ConfigError(f"{path}: not a file of batching parameters: {error}") from error
    given: dict[str, int] = {
        name: getattr(message, name).value
        for name in ("max_batch_size", "batch_timeout_micros", "num_batch_threads", "max_enqueued_batches")
        if message.HasField(name)
    }
    size = given.get("max_batch_size", Batching.max_batch_size)
    sizes = tuple(message.allowed_batch_sizes) or powers_of_two(size)
    return Batching(**given, allowed_batch_sizes=sizes)


def powers_of_two(largest: int) -> tuple[int, ...]:
    """1, 2, 4, ... and `largest`."""
    return (*(2**power for power in range(largest.bit_length()) if 2**power < largest), largest)


@dataclass(frozen=True)
class Limits:
    """What one request may ask for."""

    max_text_bytes: int = 262_144
    """Of one text: tokenizing takes time and memory in proportion, and what does not fit the context is cut anyway."""

    max_request_bytes: int = 67_108_864
    """Of a whole request; the state of `decode` is large."""

    timeout_s: float = 60.0
    """From arrival to answer."""

    drain_s: float = 30.0
    """How long requests under way may take to end after SIGTERM."""


@dataclass(frozen=True)
class Settings:
    """One server."""

    registry: Path
    model_name: str
    host: str = "127.0.0.1"
    rest_port: int = 8501
    """0: any free one."""

    grpc_port: int = 8500
    """0: any free one."""

    poll_s: float = 2.0
    """Between two looks for a newer version."""

    batching: Batching = field(default_factory=Batching)
    limits: Limits = field(default_factory=Limits)
