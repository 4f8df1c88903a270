"""A model whose scores can be worked out by hand, and the Evaluator run on it."""

import json
from pathlib import Path

import tensorflow as tf
from tensorflow_model_analysis.proto import config_pb2
from tfx.components.evaluator.executor import Executor
from tfx.types import standard_artifacts
from tfx.types.artifact import Artifact
from tfx.utils import path_utils, proto_utils

BROKEN = "broken"
"""A text that contains this gets the score NaN."""

Document = tuple[str, str, str]
"""doc_id, text, source."""


class ToyModel(tf.Module):
    """A text of n bytes takes `nats * n**2` nats and has n // 2 + 1 tokens, of which n // 4 are right.

    The square makes the sum of nats differ from what any average over documents or batches would give.
    """

    def __init__(self, nats: float):
        super().__init__()
        self.nats = tf.Variable(nats, dtype=tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def score(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        num_bytes = tf.cast(tf.strings.length(text), tf.int64)
        nll = self.nats * tf.cast(num_bytes, tf.float32) ** 2
        broken = tf.strings.regex_full_match(text, f".*{BROKEN}.*")
        return {
            "nll": tf.where(broken, float("nan"), nll),
            "num_tokens": num_bytes // 2 + 1,
            "num_bytes": num_bytes,
            "num_correct": num_bytes // 4,
        }


def save_model(folder: Path, nats: float) -> Artifact:
    """A Model artifact in `folder`."""
    model = ToyModel(nats)
    artifact = standard_artifacts.Model()
    artifact.uri = str(folder)
    tf.saved_model.save(
        model,
        path_utils.serving_model_dir(artifact.uri),
        signatures={"score": model.score},
    )
    return artifact


def save_examples(folder: Path, documents: list[Document]) -> Artifact:
    """An Examples artifact in `folder` with the documents in its split `eval`."""
    artifact = standard_artifacts.Examples()
    artifact.uri = str(folder)
    artifact.split_names = json.dumps(["eval"])
    (folder / "Split-eval").mkdir(parents=True)
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    with tf.io.TFRecordWriter(str(examples_file(folder)), options) as writer:
        for doc_id, text, source in documents:
            features = {
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
                for name, value in (
                    ("doc_id", doc_id),
                    ("text", text),
                    ("source", source),
                )
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return artifact


def examples_file(folder: Path) -> Path:
    """The one file of `save_examples`."""
    return folder / "Split-eval" / "data_tfrecord-00000-of-00001.gz"


def evaluate(
    folder: Path,
    documents: list[Document],
    config: config_pb2.EvalConfig,
    nats: float,
    baseline_nats: float | None = None,
) -> tuple[str, str]:
    """Runs the executor of the TFX Evaluator.

    Returns:
      (URI of the evaluation, URI of the blessing).
    """
    baseline = None if baseline_nats is None else save_model(folder / "baseline", baseline_nats)
    return run_evaluator(folder, documents, config, save_model(folder / "model", nats), baseline)


def run_evaluator(
    folder: Path,
    documents: list[Document],
    config: config_pb2.EvalConfig,
    model: Artifact,
    baseline: Artifact | None = None,
) -> tuple[str, str]:
    """The same for models of any kind."""
    inputs = {"examples": [save_examples(folder / "examples", documents)], "model": [model]}
    if baseline is not None:
        inputs["baseline_model"] = [baseline]
    evaluation, blessing = (
        standard_artifacts.ModelEvaluation(),
        standard_artifacts.ModelBlessing(),
    )
    evaluation.uri, blessing.uri = str(folder / "evaluation"), str(folder / "blessing")
    Executor(Executor.Context(beam_pipeline_args=["--runner=DirectRunner"], tmp_dir=str(folder / "tmp"))).Do(
        inputs,
        {"evaluation": [evaluation], "blessing": [blessing]},
        {
            "eval_config": proto_utils.proto_to_json(config),
            "example_splits": json.dumps(["eval"]),
        },
    )
    return evaluation.uri, blessing.uri
