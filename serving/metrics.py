"""What Prometheus reads at `/metrics`."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """One server's; each has its own registry, so that several can live in a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tokenmill_requests", "Requests answered", ["protocol", "signature", "code"], registry=self.registry
        )
        self.tokens = Counter("tokenmill_generated_tokens", "Tokens generated", registry=self.registry)
        self.latency = Histogram(
            "tokenmill_request_seconds",
            "From arrival to answer",
            ["signature"],
            buckets=_LATENCY_S,
            registry=self.registry,
        )
        self.queued = Histogram(
            "tokenmill_queue_seconds", "Waiting for a batch", buckets=_LATENCY_S, registry=self.registry
        )
        self.batch_rows = Histogram(
            "tokenmill_batch_rows", "Rows of a batch, without filling", buckets=_ROWS, registry=self.registry
        )
        self.queue_rows = Gauge("tokenmill_queue_rows", "Rows waiting now", registry=self.registry)
        self.streams = Gauge("tokenmill_streams", "Token streams open now", registry=self.registry)
        self.version = Gauge("tokenmill_model_version", "Version that is served", registry=self.registry)
