"""What the server does, whatever the protocol: checks a request, batches it, streams a text."""

import itertools
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Any

import numpy as np

from serving.batcher import Batcher
from serving.failures import Draining, InvalidRequest, RequestError, TimedOut, TooLarge
from serving.metrics import Metrics
from serving.models import LoadedModel, Models
from serving.settings import Settings

DEFAULT_SIGNATURE = "serving_default"

_STATEFUL = frozenset({"prefill", "decode"})
"""States of different prefills have caches of different lengths, so they never share a batch."""

_STEPS_AT_ONCE = 4
"""Tokens between two events of a stream: a call costs about as much as a token of a small model."""


class Service:
    """One model, its batcher and its limits."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.metrics = Metrics()
        self.models = Models(settings.registry, settings.model_name, self.metrics)
        self._batcher = Batcher(settings.batching, self.metrics)
        self.draining = False

    def close(self) -> None:
        """After the last request."""
        self.models.close()
        self._batcher.close()

    def model(self, name: str, version: int | None) -> LoadedModel:
        """The model for a request.

        Raises:
          Draining: the server is going down.
          NotFound: as `Models.get`.
        """
        if self.draining:
            raise Draining("the server is shutting down")
        return self.models.get(name, version)

    def deadline(self) -> float:
        """Of a request that arrives now, by `time.monotonic`."""
        return time.monotonic() + self.settings.limits.timeout_s

    def submit(
        self, model: LoadedModel, signature: str, inputs: Mapping[str, Any], deadline: float
    ) -> "Future[dict[str, Any]]":
        """Queues a call with arrays of the signature's dtypes.

        Raises:
          InvalidRequest: inputs that the signature does not have, or of other shapes.
          NotFound: no such signature.
          Overloaded: the queue is full.
        """
        rows = self._check(model.inputs_of(signature), inputs)
        run = partial(model.call_numpy, signature)
        if signature in _STATEFUL or rows == 0:
            return self._batcher.submit(None, run, inputs, max(rows, 1), deadline)
        shapes = tuple((name, inputs[name].shape[1:]) for name in sorted(inputs))
        return self._batcher.submit((model, signature, shapes), run, inputs, rows, deadline)

    def predict(self, model: LoadedModel, signature: str, inputs: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        """As `submit`, and waits.

        Raises:
          TimedOut: no answer by the deadline.
        """
        answer = self.submit(model, signature, inputs, deadline)
        return self.wait(answer, signature, deadline)

    def wait(self, answer: "Future[dict[str, Any]]", signature: str, deadline: float) -> dict[str, Any]:
        """The answer, counted.

        Raises:
          RequestError: what became of it instead.
        """
        try:
            outputs = answer.result(max(0.0, deadline - time.monotonic()))
        except FutureTimeoutError:
            answer.cancel()
            raise TimedOut(f"no answer within {self.settings.limits.timeout_s:g} s") from None
        except Exception as error:  # of whatever kind the model raises
            raise as_request_error(error) from error
        if signature == DEFAULT_SIGNATURE and "num_tokens" in outputs:
            self.metrics.tokens.inc(float(np.sum(outputs["num_tokens"])))
        return outputs

    def stream(self, model: LoadedModel, inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Continues one prompt; yields `text` (what is new), `num_tokens` so far, `finish_reason`.

        The first has no text yet, and `prompt_tokens_dropped`. Whoever stops asking ends the work.
        """
        self._check(model.inputs_of("prefill"), inputs)
        state = self._step(model, "prefill", inputs)
        yield {"text": "", "num_tokens": 0, "prompt_tokens_dropped": int(state["prompt_tokens_dropped"][0])}
        names = model.inputs_of("decode").keys() - {"num_steps"}
        shown, made = "", 0
        for num_steps in itertools.chain([1], itertools.repeat(_STEPS_AT_ONCE)):
            state = self._step(model, "decode", {"num_steps": num_steps, **{name: state[name] for name in names}})
            text = state["text"].numpy()[0].decode("utf-8", "replace")
            count = int(state["num_tokens"][0])
            reason = state["finish_reason"].numpy()[0].decode()
            self.metrics.tokens.inc(count - made)
            event = {"text": text[len(shown) :], "num_tokens": count, "finish_reason": reason}
            shown, made = text, count
            yield event
            if reason:
                return

    def _step(self, model: LoadedModel, signature: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        deadline = self.deadline()
        answer = self._batcher.submit(None, partial(model.call, signature), inputs, 1, deadline)
        return self.wait(answer, signature, deadline)

    def _check(self, specs: Mapping[str, Any], inputs: Mapping[str, Any]) -> int:
        """Rows of a request."""
        missing, unknown = sorted(specs.keys() - inputs.keys()), sorted(inputs.keys() - specs.keys())
        if missing or unknown:
            raise InvalidRequest(
                f"inputs missing: {', '.join(missing) or 'none'}; not known: {', '.join(unknown) or 'none'}"
            )
        rows: dict[str, int] = {}
        for name, spec in specs.items():
            shape = inputs[name].shape
            if not spec.shape.is_compatible_with(shape):
                raise InvalidRequest(f"{name}: its shape must be {spec.shape}. Received: {list(shape)}")
            if len(shape):
                rows[name] = shape[0]
            if spec.dtype.name == "string":
                self._check_texts(name, inputs[name])
        if len(set(rows.values())) > 1:
            raise InvalidRequest(f"inputs must have one value for each row. Received rows: {rows}")
        return next(iter(rows.values()), 0)

    def _check_texts(self, name: str, texts: np.ndarray) -> None:
        most = self.settings.limits.max_text_bytes
        for row, text in enumerate(texts.ravel()):
            if len(text) > most:
                raise TooLarge(f"{name}: row {row} has {len(text)} bytes; at most {most} are allowed")


def as_request_error(error: Exception) -> RequestError:
    """What a client is told of an exception."""
    import tensorflow as tf

    if isinstance(error, RequestError):
        return error
    if isinstance(error, tf.errors.InvalidArgumentError):
        said = re.search(r"assertion failed: \[(.*?)(?:\. Rows, from 0:)?\]", error.message)
        return InvalidRequest(said[1] if said else error.message.splitlines()[0])
    return RequestError(f"the model failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
