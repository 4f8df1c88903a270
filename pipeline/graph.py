"""The graph: from documents to a pushed model. One definition for every runner.

documents -> CorpusGen -> StatisticsGen -> SchemaGen, ExampleValidator (<- ImportSchemaGen)
             CorpusGen, StatisticsGen, ExampleValidator -> CorpusGate, before
             CorpusGen -> Transform -> SequencePacker -> DistributedTrainer -> ExportValidator, Evaluator
             DistributedTrainer, ExportValidator, Evaluator -> RegistryPusher
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

from components.corpus_gate.component import CorpusGate
from components.distributed_trainer.component import DistributedTrainer
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

SCHEMA_FILE = Path(__file__).resolve().parent.parent / "schema" / "corpus.pbtxt"


def create_pipeline(config: RunConfig) -> Pipeline:
    """The pipeline of one configuration, with ML Metadata in SQLite."""
    return Pipeline(
        pipeline_name=config.name,
        pipeline_root=str(config.artifact_root),
        components=create_components(config),
        enable_cache=True,
        metadata_connection_config=metadata.sqlite_metadata_connection_config(str(config.metadata_path)),
        beam_pipeline_args=config.beam.pipeline_args,
    )


def create_components(config: RunConfig) -> list[BaseNode]:
    """Every component, wired."""
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
    trainer = DistributedTrainer(
        rows=packer.outputs["rows"],
        transform_graph=transform.outputs["transform_graph"],
        model_config=config.model,
        train_config=config.train,
        distribution_config=config.distribution,
        checkpoint_root=str(config.checkpoint_root),
    )
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
        example_splits=["eval"],
        eval_config=make_eval_config(
            max_bits_per_byte=config.evaluation.max_bits_per_byte,
            slice_by_source=config.evaluation.slice_by_source,
            code_hash=source_hash("components/evaluator"),
        ),
    )
    pusher = RegistryPusher(
        model=trainer.outputs["model"],
        model_blessing=evaluator.outputs["blessing"],
        infra_blessing=export_validator.outputs["blessing"],
        evaluation=evaluator.outputs["evaluation"],
        rows=packer.outputs["rows"],
        registry_dir=str(config.registry_folder),
        model_name=config.name,
        keep_versions=config.registry.keep_versions,
    )
    return [
        corpus_gen,
        statistics_gen,
        schema_gen,
        import_schema_gen,
        example_validator,
        gate,
        transform,
        packer,
        trainer,
        export_validator,
        evaluator,
        pusher,
    ]


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
