"""TFMA metrics over the `score` signature: sums over documents, divided once.

`score` gives for each document the sums over its scored tokens. They are added up over all documents
of a slice before anything is divided, so a long document weighs as much as its tokens and the result
depends neither on batches nor on workers: the negative log likelihood is added in fixed point, where
the order of additions cannot matter.

A document whose score is not a finite number makes every quotient of its slice NaN, which no
threshold admits, and is counted in `num_not_finite`. No label is needed: `score` brings its own targets.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

import apache_beam as beam
import numpy as np

# Registers the SentencePiece op, without which a worker cannot load the model; TFMA loads it in the process,
# and after the moment, in which it imports this module.
import tensorflow_text  # noqa: F401
from tensorflow_model_analysis import constants
from tensorflow_model_analysis.metrics import metric_types
from tensorflow_model_analysis.utils import util

from foundation.errors import ModelError

NLL = "nll"
NUM_TOKENS = "num_tokens"
NUM_BYTES = "num_bytes"
NUM_CORRECT = "num_correct"
SCORE_OUTPUTS = (NLL, NUM_TOKENS, NUM_BYTES, NUM_CORRECT)
"""Outputs of the `score` signature, each [B]."""

NLL_UNITS_PER_NAT = 1 << 40
"""Fixed point of the sum. A float32 of at least 2**-16 nats is exact in it; smaller ones lose less than 1e-12."""

_SUMS_NAME = "_document_sums"
"""TFMA takes a metric whose name begins with an underscore for an intermediate result and does not write it."""


class DocumentSums(NamedTuple):
    """What is known of a set of documents; all are integers, so that sums are exact."""

    nll_units: int = 0
    """Negative log likelihood of the scored tokens, in `1 / NLL_UNITS_PER_NAT` nats."""

    num_tokens: int = 0
    num_bytes: int = 0
    num_correct: int = 0
    """Tokens that were the model's first choice."""

    num_documents: int = 0
    num_not_finite: int = 0
    """Documents whose negative log likelihood is NaN or infinite; they add nothing to `nll_units`."""

    @classmethod
    def of_document(cls, nll: float, num_tokens: int, num_bytes: int, num_correct: int) -> "DocumentSums":
        """The sums of one document, `nll` in nats."""
        finite = math.isfinite(nll)
        units = round(nll * NLL_UNITS_PER_NAT) if finite else 0
        return cls(units, num_tokens, num_bytes, num_correct, 1, 0 if finite else 1)

    def plus(self, other: "DocumentSums") -> "DocumentSums":
        """Sums of both sets."""
        return DocumentSums(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def nll(self) -> float:
        """Nats; NaN if that of any document is not finite."""
        return math.nan if self.num_not_finite else self.nll_units / NLL_UNITS_PER_NAT

    @property
    def bits_per_byte(self) -> float:
        """Bits the model needs for a byte of text; does not depend on the tokenizer. NaN without bytes."""
        return self.nll / math.log(2) / self.num_bytes if self.num_bytes else math.nan

    @property
    def perplexity(self) -> float:
        """exp of nats per token: infinite where that exceeds a float, NaN without tokens."""
        if not self.num_tokens:
            return math.nan
        try:
            return math.exp(self.nll / self.num_tokens)
        except OverflowError:
            return math.inf

    @property
    def token_accuracy(self) -> float:
        """Share of tokens that were the model's first choice; NaN without tokens or with a broken score."""
        if self.num_not_finite or not self.num_tokens:
            return math.nan
        return self.num_correct / self.num_tokens


class Lengths(NamedTuple):
    """Documents of a range of lengths."""

    least: int = 0
    """Bytes of the shortest."""

    below: int | None = None
    """Bytes that they stay below; None: no limit."""

    def holds(self, num_bytes: int) -> bool:
        """Whether a document of so many bytes is one of them."""
        return self.least <= num_bytes and (self.below is None or num_bytes < self.below)

    @property
    def suffix(self) -> str:
        """What metrics over this range have in their names; nothing for all documents."""
        return "" if self == Lengths() else f"_bytes_{self.least}_{'' if self.below is None else self.below}"


class _SumsOfDocument(metric_types.Preprocessor):
    """From a document's extracts to its `DocumentSums`: a few numbers, whatever the document's length."""

    def __init__(self, model_name: str, lengths: Lengths = Lengths()):  # noqa: B008 - a constant
        # TFMA tells preprocessors apart by their names.
        super().__init__(name=f"{_SUMS_NAME}{lengths.suffix}:{model_name}")
        self._model_name = model_name
        self._lengths = lengths

    def process(self, extracts: dict[str, Any]) -> Iterator[DocumentSums]:
        predictions = extracts[constants.PREDICTIONS_KEY]
        if self._model_name:
            # With two models the predictions lie one level deeper; with one they do not, named or not.
            named = util.get_by_keys(predictions, [self._model_name], optional=True)
            predictions = predictions if named is None else named
        nll, *counts = (_scalar(predictions, output) for output in SCORE_OUTPUTS)
        sums = DocumentSums.of_document(float(nll), *(int(count) for count in counts))
        yield sums if self._lengths.holds(sums.num_bytes) else DocumentSums()


class _AddDocuments(beam.CombineFn):
    """Adds up `DocumentSums`."""

    def __init__(self, key: metric_types.MetricKey):
        super().__init__()
        self._key = key

    def create_accumulator(self) -> DocumentSums:
        return DocumentSums()

    def add_input(self, accumulator: DocumentSums, element: DocumentSums) -> DocumentSums:
        return accumulator.plus(element)

    def merge_accumulators(self, accumulators: Iterable[DocumentSums]) -> DocumentSums:
        total = DocumentSums()
        for accumulator in accumulators:
            total = total.plus(accumulator)
        return total

    def extract_output(self, accumulator: DocumentSums) -> dict[metric_types.MetricKey, DocumentSums]:
        return {self._key: accumulator}


class _Wanted(NamedTuple):
    """What a metric is of the sums of a slice."""

    field: str
    lengths: Lengths
    min_documents: int


class _SumsMetric(metric_types.Metric):
    """A metric that is one field of the `DocumentSums` of a slice.

    Args:
      name: its name in results and thresholds; the field's, with the range's suffix, if not given.
      least, below: a range of lengths in bytes, to whose documents the metric is confined; `Lengths`.
      min_documents: in a slice of fewer documents the metric is 0, so that no threshold on it can be missed there.
      rebaseline: a note that the comparison with the baseline has no threshold on purpose; of no effect here.
      code_hash: of the code that computes metrics. Not used in the computation: it stands in the evaluation's
        configuration, so that an edit of this file is not served from the cache.
    """

    FIELD: ClassVar[str]

    def __init__(
        self,
        name: str = "",
        code_hash: str = "",
        least: int = 0,
        below: int | None = None,
        min_documents: int = 0,
        rebaseline: bool = False,
    ):
        lengths = Lengths(least, below)
        super().__init__(
            functools.partial(_computations, _Wanted(self.FIELD, lengths, min_documents)),
            name=name or self.FIELD + lengths.suffix,
            code_hash=code_hash,
            least=least,
            below=below,
            min_documents=min_documents,
            rebaseline=rebaseline,
        )


class BitsPerByte(_SumsMetric):
    """nll / ln 2 / bytes of text: compares models whatever their tokenizers."""

    FIELD = "bits_per_byte"


class Perplexity(_SumsMetric):
    """exp(nll / tokens): compares models of one tokenizer only."""

    FIELD = "perplexity"


class TokenAccuracy(_SumsMetric):
    """Share of tokens that were the model's first choice."""

    FIELD = "token_accuracy"


class TokenCount(_SumsMetric):
    """Scored tokens."""

    FIELD = "num_tokens"


class ByteCount(_SumsMetric):
    """Bytes of text, UTF-8."""

    FIELD = "num_bytes"


class DocumentCount(_SumsMetric):
    """Documents."""

    FIELD = "num_documents"


class NotFiniteCount(_SumsMetric):
    """Documents whose score is NaN or infinite: any makes the model unfit."""

    FIELD = "num_not_finite"


METRICS = (
    BitsPerByte,
    Perplexity,
    TokenAccuracy,
    TokenCount,
    ByteCount,
    DocumentCount,
    NotFiniteCount,
)
for _metric in METRICS:
    metric_types.register_metric(_metric)


def _computations(
    wanted: _Wanted,
    name: str,
    model_names: list[str],
    output_names: list[str],
    example_weighted: bool,
    **settings: Any,
) -> metric_types.MetricComputations:
    """For each model the sums, which TFMA computes once for all metrics, and the metric that follows from them."""
    del settings  # see _SumsMetric
    computations: metric_types.MetricComputations = []
    for model_name, output_name in itertools.product(model_names, output_names):
        sums_key, key = (
            metric_types.MetricKey(
                name=each,
                model_name=model_name,
                output_name=output_name,
                example_weighted=example_weighted,
            )
            for each in (_SUMS_NAME + wanted.lengths.suffix, name)
        )
        sums = metric_types.MetricComputation(
            keys=[sums_key],
            preprocessors=[_SumsOfDocument(model_name, wanted.lengths)],
            combiner=_AddDocuments(sums_key),
        )
        metric = metric_types.DerivedMetricComputation(
            keys=[key], result=functools.partial(_metric_of_sums, wanted, key, sums_key)
        )
        computations += [sums, metric]
    return computations


def _metric_of_sums(
    wanted: _Wanted,
    key: metric_types.MetricKey,
    sums_key: metric_types.MetricKey,
    metrics: dict[Any, Any],
) -> dict[metric_types.MetricKey, float]:
    sums: DocumentSums = metrics[sums_key]
    if sums.num_documents < wanted.min_documents:
        return {key: 0.0}
    return {key: float(getattr(sums, wanted.field))}


def _scalar(predictions: dict[str, np.ndarray], output: str) -> Any:
    if output not in predictions:
        raise ModelError(
            f"the model's signature `score` gives no `{output}`; export it with outputs "
            f"{', '.join(SCORE_OUTPUTS)}. Received: {', '.join(sorted(predictions))}"
        )
    return np.asarray(predictions[output]).item()
