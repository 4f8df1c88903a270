"""The graph: from documents to a pushed model. One definition for every runner.

documents -> CorpusGen -> StatisticsGen -> SchemaGen, ExampleValidator (<- ImportSchemaGen)
             CorpusGen, StatisticsGen, ExampleValidator -> CorpusGate, before
             CorpusGen -> Transform -> SequencePacker -> DistributedTrainer -> ExportValidator, Evaluator
             DistributedTrainer, ExportValidator, Evaluator -> RegistryPusher
             DistributedTrainer, Evaluator -> EvaluationReport
             registry -> BaselineModel -> Evaluator, and DistributedTrainer for a warm start
"""

import dataclasses
import hashlib
from pathlib import Path

from tfx.components import (
    Evaluator,
    ExampleValidator,
    ImportExampleGen,
    SchemaGen,
    StatisticsGen,
    Transform,
)
from tfx.dsl.components.base.base_node import BaseNode
from tfx.orchestration import metadata
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import example_gen_pb2, range_config_pb2, transform_pb2
from tfx.types import BaseChannel

from components.baseline_model.choice import choose
from components.baseline_model.component import BaselineModel
from components.corpus_gate.component import CorpusGate
from components.distributed_trainer.component import DistributedTrainer
from components.distributed_trainer.component import code_hash as trainer_code_hash
from components.evaluation_report.component import EvaluationReport
from components.evaluator.eval_config import make_eval_config
from components.export_validator.component import ExportValidator
from components.registry_pusher.component import RegistryPusher
from components.sequence_packer.component import SequencePacker
from components.tokenizer.learning import LearningOptions
from components.tokenizer.preprocessing import PREPROCESSING_FN
from components.tokenizer.ready_model import read_ready_model
from foundation.documents import DOC_ID, DOCUMENT_FILE_PREFIX
from foundation.source_hash import source_hash
from pipeline.config import RunConfig
from pipeline.curated_schema import CuratedSchema
from pipeline.recipe import recipe_of

SCHEMA_FILE = Path(__file__).resolve().parent.parent / "schema" / "corpus.pbtxt"


def create_pipeline(config: RunConfig, rebaseline: bool = False) -> Pipeline:
    """The pipeline of one configuration, with ML Metadata in SQLite.

    Args:
      rebaseline: accept the model however it compares with the one that is served.
    """
    return Pipeline(
        pipeline_name=config.name,
        pipeline_root=str(config.artifact_root),
        components=create_components(config, rebaseline),
        enable_cache=True,
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(config.metadata_path)),
        beam_pipeline_args=config.beam.pipeline_args,
    )


def create_components(config: RunConfig, rebaseline: bool = False) -> list[BaseNode]:
    """Every component, wired, for the model that the registry serves now."""
    corpus_gen = _corpus_gen(config)
    statistics_gen = StatisticsGen(examples=corpus_gen.outputs["examples"])
    schema_gen = SchemaGen(statistics=statistics_gen.outputs["statistics"])
    import_schema_gen = CuratedSchema(SCHEMA_FILE).with_id("ImportSchemaGen")
    schema = import_schema_gen.outputs["schema"]
    example_validator = ExampleValidator(statistics=statistics_gen.outputs["statistics"], schema=schema)
    serving = config.gate.serving_statistics
    gate = CorpusGate(
        examples=corpus_gen.outputs["examples"],
        statistics=statistics_gen.outputs["statistics"],
        anomalies=example_validator.outputs["anomalies"],
        schema=schema,
        rules=config.gate.rules(),
        max_document_bytes=config.gate.max_document_bytes,
        serving_statistics=Path(serving).absolute() if serving else None,
        history_dir=config.gate_folder,
        title=config.name,
    )
    transform = _transform(config, corpus_gen, schema)
    transform.add_upstream_node(gate)  # nothing is learned from documents that the gate has not passed
    packer = SequencePacker(
        examples=transform.outputs["transformed_examples"],
        transform_graph=transform.outputs["transform_graph"],
        seq_len=config.model.seq_len,
        vocab_size=config.model.vocab_size,
        policy=config.packing.policy,
        tokens_per_shard=config.packing.tokens_per_shard,
    )
    registry_dir = str(config.registry_folder)
    recipe = _recipe(config, [corpus_gen, transform, packer])
    baseline = BaselineModel(
        registry_dir=registry_dir,
        model_name=config.name,
        baseline=choose(registry_dir, config.name, recipe, rebaseline),
    )
    baseline.add_upstream_node(packer)  # late, so that what is served is known as late as can be
    warm = config.train.warm_start == "baseline"
    trainer = DistributedTrainer(
        rows=packer.outputs["rows"],
        transform_graph=transform.outputs["transform_graph"],
        model_config=config.model,
        train_config=config.train,
        distribution_config=config.distribution,
        checkpoint_root=str(config.checkpoint_root),
        baseline_model=baseline.outputs["model"] if warm else None,
    )
    trainer.add_upstream_node(baseline)  # so that a run --to the trainer leaves all that a run --from Evaluator takes
    export_validator = ExportValidator(
        model=trainer.outputs["model"],
        model_run=trainer.outputs["model_run"],
        examples=corpus_gen.outputs["examples"],
        rows=packer.outputs["rows"],
        **config.export.model_dump(),
        report_dir=str(config.export_folder),
        title=config.name,
    )
    evaluator = Evaluator(
        examples=corpus_gen.outputs["examples"],
        model=trainer.outputs["model"],
        baseline_model=baseline.outputs["model"],
        example_splits=["eval"],
        eval_config=make_eval_config(
            **config.evaluation.model_dump(),
            rebaseline=rebaseline,
            code_hash=source_hash("components/evaluator"),
        ),
    )
    pusher = RegistryPusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        infra_blessing=export_validator.outputs["blessing"],
        evaluation=evaluator.outputs["evaluation"],
        rows=packer.outputs["rows"],
        examples=corpus_gen.outputs["examples"],
        baseline_model=baseline.outputs["model"],
        recipe=recipe,
        registry_dir=registry_dir,
        model_name=config.name,
        keep_versions=config.registry.keep_versions,
        mirror=config.registry.mirror or "",
    )
    report = EvaluationReport(
        model=trainer.outputs["model"],
        model_run=trainer.outputs["model_run"],
        evaluation=evaluator.outputs["evaluation"],
        blessing=evaluator.outputs["blessing"],
        examples=corpus_gen.outputs["examples"],
        title=config.name,
    )
    report.add_upstream_node(pusher)  # a page that cannot be written does not keep a good model from being served
    return [
        corpus_gen,
        statistics_gen,
        schema_gen,
        import_schema_gen,
        example_validator,
        gate,
        transform,
        packer,
        baseline,
        trainer,
        export_validator,
        evaluator,
        pusher,
        report,
    ]


def _recipe(config: RunConfig, before_training: list[BaseNode]) -> str:
    """Fingerprint of everything that decides the model, but for a baseline that it starts from."""
    training = {
        "model": config.model.model_dump(),
        "train": config.train.model_dump(),
        "distribution": config.distribution.model_dump(),
        "code": trainer_code_hash(),
    }
    return recipe_of(before_training, training, config.documents_folder, config.corpus.span)


def _corpus_gen(config: RunConfig) -> BaseNode:
    """Documents into Examples, split by the hash of their ids."""
    span = config.corpus.span
    only = None
    if span is not None:
        only = range_config_pb2.RangeConfig(
            static_range=range_config_pb2.StaticRange(start_span_number=span, end_span_number=span)
        )
    held_out = config.corpus.eval_buckets
    splits = [
        example_gen_pb2.SplitConfig.Split(name="train", hash_buckets=config.corpus.hash_buckets - held_out),
        example_gen_pb2.SplitConfig.Split(name="eval", hash_buckets=held_out),
    ]
    return ImportExampleGen(
        input_base=str(config.documents_folder),
        input_config=example_gen_pb2.Input(
            splits=[example_gen_pb2.Input.Split(name="documents", pattern=f"span-{{SPAN}}/{DOCUMENT_FILE_PREFIX}-*")]
        ),
        range_config=only,
        output_config=example_gen_pb2.Output(
            split_config=example_gen_pb2.SplitConfig(splits=splits, partition_feature_name=DOC_ID)
        ),
    ).with_id("CorpusGen")


def _transform(config: RunConfig, corpus_gen: BaseNode, schema: BaseChannel) -> BaseNode:
    """Learns the tokenizer from the training split and applies it to both."""
    model_file = config.tokenizer.model_file
    ready = None if model_file is None else read_ready_model(model_file, config.model.vocab_size)
    options = LearningOptions(
        vocab_size=config.model.vocab_size,
        split_digits=config.tokenizer.split_digits,
        max_words=config.tokenizer.max_words,
        symbols=tuple(config.tokenizer.symbols),
        sample_rate=config.tokenizer.sample_rate,
        model_file=None if model_file is None else str(Path(model_file).absolute()),
        model_sha256=None if ready is None else hashlib.sha256(ready).hexdigest(),
    )
    return Transform(
        examples=corpus_gen.outputs["examples"],
        schema=schema,
        preprocessing_fn=PREPROCESSING_FN,
        splits_config=transform_pb2.SplitsConfig(analyze=["train"], transform=["train", "eval"]),
        # An import path stays the same when the code behind it changes: the hash makes the cache notice.
        custom_config={
            "tokenizer": dataclasses.asdict(options),
            "code_hash": source_hash("components/tokenizer", "trainer_module/tokenization.py", "foundation"),
        },
        disable_statistics=True,
    )
