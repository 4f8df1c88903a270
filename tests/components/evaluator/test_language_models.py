"""The verdict on real language models, tiny ones: registry -> baseline -> evaluation -> registry.

What the Evaluator measures is held against a computation that shares none of its parts but the model's own layers:
SentencePiece from Python, one document at a time, softmax and sums in float64.
"""

import collections
import hashlib
import math
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from tfx.types import standard_artifacts
from tfx.utils import path_utils

from components.baseline_model import executor as baseline_model
from components.baseline_model.choice import choose
from components.evaluator.eval_config import make_eval_config
from components.evaluator.results import EvaluationResults, Verdict, load_results, load_verdict
from components.registry_pusher import executor as registry_pusher
from components.registry_pusher import registry
from components.tokenizer.learning import LearningOptions, count_words_of_batch, learn_from_counts
from foundation.special_tokens import BOS_ID, EOS_ID
from tests.components.evaluator import toys
from trainer_module import export, model, scoring
from trainer_module.config import ModelConfig
from trainer_module.parameters import init
from trainer_module.tokenization import escape_text

pytestmark = pytest.mark.slow

_STDLIB = Path(sysconfig.get_path("stdlib"))
_LONG = (_STDLIB / "heapq.py").read_text()[:2500]
DOCUMENTS: list[toys.Document] = [
    ("a1", _LONG, "code"),
    ("a2", "def f(x):\n    return x\n", "code"),
    ("a3", "café 中文 \U0001f600\r\n\tend", "code"),
    ("b1", "only one", "single"),
    ("c1", "", "empty"),
]
"""One far longer than the context, one without a byte, a source of one document."""

Params = dict[str, tf.Tensor]


@pytest.fixture(scope="module")
def tokenizers() -> dict[int, bytes]:
    """By size: learned from the same files of Python's own library."""
    counts: collections.Counter[str] = collections.Counter()
    for name in ("argparse.py", "datetime.py", "inspect.py", "typing.py", "doctest.py", "tarfile.py"):
        texts = np.array([(_STDLIB / name).read_bytes()], dtype=object)
        counts.update(dict(count_words_of_batch((texts,))))
    return {
        size: learn_from_counts(counts.items(), LearningOptions(vocab_size=size, split_digits=False, max_words=50_000))
        for size in (1000, 4096)
    }


def config_of(size: int) -> ModelConfig:
    return ModelConfig(vocab_size=size, seq_len=64, num_layers=1, width=16, num_heads=2)


def spoilt(params: Params, by: float) -> Params:
    """Made worse on purpose: noise on every weight."""
    noise = np.random.default_rng(1)
    return {name: value + by * noise.standard_normal(value.shape).astype("float32") for name, value in params.items()}


def save(folder: Path, size: int, params: Params, tokenizers: dict[int, bytes]) -> standard_artifacts.Model:
    artifact = standard_artifacts.Model()
    artifact.uri = str(folder)
    sha256 = hashlib.sha256(tokenizers[size]).hexdigest()
    target = path_utils.serving_model_dir(artifact.uri)
    export.export(target, config_of(size), params, tokenizers[size], {"tokenizer_sha256": sha256})
    return artifact


def directly(size: int, params: Params, tokenizer: bytes, texts: list[str]) -> tuple[float, float, float]:
    """Bits per byte, perplexity and accuracy."""
    config, processor = config_of(size), sentencepiece.SentencePieceProcessor(model_proto=tokenizer)
    nll, hits, tokens = 0.0, 0, 0
    for text in texts:
        ids = np.array([BOS_ID, *processor.encode(escape_text(text)), EOS_ID])
        done = 1  # tokens that need no prediction any more
        for start in range(0, len(ids), scoring.stride(config)):
            inputs = ids[start : start + config.seq_len]
            targets = ids[start + 1 : start + 1 + config.seq_len]
            inputs = inputs[: len(targets)]
            if start + 1 + len(targets) <= done:
                break
            batch = tf.constant(inputs[None], tf.int32)
            hidden = model.hidden_states(config, params, batch, tf.ones_like(batch))
            logits = model.output_logits(config, params, hidden)[0].numpy().astype(np.float64)
            logs = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
            logs -= logits.max(-1, keepdims=True)
            for place in range(done - start - 1, len(targets)):
                nll -= logs[place, targets[place]]
                hits += int(logits[place].argmax() == targets[place])
                tokens += 1
            done = start + 1 + len(targets)
        assert done == len(ids)
    num_bytes = sum(len(text.encode()) for text in texts)
    return nll / math.log(2) / num_bytes, math.exp(nll / tokens), hits / tokens


class Line:
    """One pipeline's way to the registry, without the pipeline."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.registry_dir = folder / "registry"
        self.runs = 0

    def __call__(self, made: standard_artifacts.Model, recipe: str, **limits) -> tuple[Verdict, EvaluationResults, str]:
        """Verdict, results and what the pusher says."""
        self.runs += 1
        folder = self._folder / f"run-{self.runs}"
        baseline = standard_artifacts.Model()
        baseline.uri = str(folder / "baseline")
        outputs = {"model": [baseline]}
        chosen = choose(self.registry_dir, "toy", recipe, limits.get("rebaseline", False))
        place = {"registry_dir": str(self.registry_dir), "model_name": "toy"}
        baseline_model.Executor().Do({}, outputs, {**place, "baseline": chosen})
        settings = {"max_bits_per_byte": 50.0, "max_bits_per_byte_increase": 0.02, "slice_by_source": True, **limits}
        config = make_eval_config(code_hash="", **settings)
        uris = toys.run_evaluator(folder, DOCUMENTS, config, made, *outputs["model"])
        verdict, results = load_verdict(*uris), load_results(uris[0])
        evaluation, blessing = standard_artifacts.ModelEvaluation(), standard_artifacts.ModelBlessing()
        evaluation.uri, blessing.uri = uris
        blessing.set_int_custom_property("blessed", int(verdict.blessed))
        pushed = standard_artifacts.PushedModel()
        pushed.uri = str(folder / "pushed")
        registry_pusher.Executor().Do(
            {
                "model": [made],
                "model_blessing": [blessing],
                "evaluation": [evaluation],
                "baseline_model": outputs["model"],
            },
            {"pushed_model": [pushed]},
            {**place, "keep_versions": 5, "code_hash": "", "recipe": recipe},
        )
        return verdict, results, pushed.get_string_custom_property("outcome")

    @property
    def versions(self) -> list[int]:
        return registry.list_versions(self.registry_dir, "toy")


@pytest.fixture(scope="module")
def story(tmp_path_factory, tokenizers):
    """A model of 4,096 pieces, then models of 1,000 against it: a bad one, a good one, that one again, a broken one,
    and the bad one accepted on purpose."""
    folder = tmp_path_factory.mktemp("story")
    line = Line(folder)
    large, small = init(config_of(4096), 0), init(config_of(1000), 0)
    served = spoilt(large, 0.5)
    worse = spoilt(small, 1.0)
    broken = {**small, "embedding": small["embedding"] * float("nan")}
    models = {
        "first": (4096, served),
        "worse": (1000, worse),
        "better": (1000, small),
        "broken": (1000, broken),
    }
    made = {name: save(folder / name, size, params, tokenizers) for name, (size, params) in models.items()}
    said = {name: line(made[name], recipe=name) for name in ("first", "worse", "better")}
    said["same"] = line(made["better"], recipe="of another pipeline")
    said["broken"] = line(made["broken"], recipe="broken")
    said["accepted"] = line(made["worse"], recipe="worse", rebaseline=True)
    return line, models, said


@pytest.mark.parametrize("name", ["first", "worse", "better"])
def test_metrics_equal_a_direct_computation(story, tokenizers, name):
    """Overall and by source, with and without a baseline, to 1e-5 of their value."""
    _, models, said = story
    size, params = models[name]
    results = said[name][1]
    sources = [None, *(part.source for part in results.by_source if part.num_bytes)]
    assert sources == [None, "code", "single"]
    for source in sources:
        texts = [text for _, text, of in DOCUMENTS if source in (None, of)]
        expected = directly(size, params, tokenizers[size], texts)
        part = next((part for part in results.by_source if part.source == source), results.overall)
        assert (part.bits_per_byte, part.perplexity) == pytest.approx(expected[:2], rel=1e-5)
        assert part.token_accuracy == pytest.approx(expected[2], abs=1e-9)


def test_models_of_other_tokenizers_are_compared_in_bits_per_byte(story, tokenizers):
    """1,000 pieces against 4,096: other tokens, so perplexities say nothing; the same bytes."""
    _, models, said = story
    verdict, results, _ = said["better"]
    assert results.baseline is not None
    assert results.overall.num_bytes == results.baseline.overall.num_bytes
    assert results.overall.num_tokens > results.baseline.overall.num_tokens
    texts = [text for _, text, _ in DOCUMENTS]
    now, before = (
        directly(size, params, tokenizers[size], texts)[0] for size, params in (models["better"], models["first"])
    )
    assert f"bits_per_byte {now:.4f} is {before - now:.4f} below the baseline's {before:.4f}" in verdict.reasons[1]


def test_a_model_made_worse_is_refused_and_a_better_one_is_pushed(story):
    _, _, said = story
    assert (said["first"][0].blessed, said["first"][2]) == (True, "pushed")
    verdict, _, outcome = said["worse"]
    assert (verdict.blessed, outcome) == (False, "not_blessed")
    assert len(verdict.reasons) == 1 and "above the baseline's" in verdict.reasons[0]
    assert (said["better"][0].blessed, said["better"][2]) == (True, "pushed")


def test_an_identical_model_differs_by_nothing_and_is_not_pushed_again(story):
    """Bit for bit, in every slice."""
    _, _, (verdict, results, outcome) = story[0], story[1], story[2]["same"]
    assert results.baseline is not None
    assert results.overall == results.baseline.overall
    assert results.by_length == results.baseline.by_length
    for part, before in zip(results.by_source, results.baseline.by_source, strict=True):
        assert part.bits_per_byte == before.bits_per_byte or part.num_bytes == before.num_bytes == 0
    assert "is 0.0000 below the baseline's" in verdict.reasons[1]
    assert (verdict.blessed, outcome) == (True, "already_served")


def test_not_a_number_is_a_refusal(story):
    _, _, said = story
    verdict, results, outcome = said["broken"]
    assert verdict == Verdict(
        False, ["overall: bits_per_byte is not a number: the scores of 5 of 5 documents are not finite"]
    )
    assert math.isnan(results.overall.bits_per_byte)
    assert outcome == "not_blessed"


def test_accepted_on_purpose_is_recorded(story):
    line, _, said = story
    verdict, _, outcome = said["accepted"]
    assert (verdict.blessed, outcome) == (True, "pushed")
    assert verdict.reasons[-1].startswith("accepted on purpose (--rebaseline): bits_per_byte is")
    assert line.versions == [1, 2, 3]
    manifests = [registry.read_manifest(line.registry_dir, "toy", version) for version in line.versions]
    assert [manifest["evaluation"]["rebaselined"] for manifest in manifests] == [False, False, True]
    assert [(manifest["baseline"] or {}).get("version") for manifest in manifests] == [None, 1, 2]
    assert [manifest["recipe"] for manifest in manifests] == ["first", "better", "worse"]


def test_slices_by_length_add_up(story):
    """Each document in one range."""
    for part in ("num_documents", "num_bytes", "num_tokens"):
        for _, results, _ in story[2].values():
            assert sum(getattr(each, part) for each in results.by_length) == getattr(results.overall, part)
    assert [each.source for each in story[2]["first"][1].by_length] == ["0 to 1,023 bytes", "1,024 to 16,383 bytes"]
