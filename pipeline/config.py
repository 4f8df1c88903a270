"""The configuration: one YAML file is one run. Every setting stands here or in `trainer_module.config`, once.

Relative paths are taken from the folder in which the command runs.
"""

import os
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from foundation.errors import ConfigError
from foundation.special_tokens import MIN_VOCAB_SIZE
from trainer_module.config import DistributionConfig, ModelConfig, Section, TrainConfig


class CorpusConfig(Section):
    """The documents, as `tokenmill ingest` writes them."""

    documents: str
    """Folder that holds `span-N/` folders of document shards."""

    span: int | None = Field(None, ge=1)
    """Span to train on. Null: the newest."""

    eval_buckets: int = Field(1, ge=1, le=999)
    """Documents whose id hashes into this many of `hash_buckets` are held out for evaluation."""

    hash_buckets: int = Field(20, ge=2, le=1000)
    """Buckets into which documents are hashed; the rest is trained on."""

    @model_validator(mode="after")
    def _some_training_data(self) -> "CorpusConfig":
        if self.eval_buckets >= self.hash_buckets:
            raise ValueError(
                f"eval_buckets {self.eval_buckets} leaves none of {self.hash_buckets} hash_buckets to train on"
            )
        return self


class GateRule(Section):
    """How one rule of the gate is applied. What is not set is the rule's own (`components/corpus_gate/rules.py`)."""

    threshold: float | None = Field(None, ge=0)
    severity: Literal["block", "warn", "off"] | None = None
    """block: the run fails before anything is learned; warn: it is said and goes on; off: it is not looked at."""


class GateConfig(Section):
    """What may enter the training. Each rule counts something that must stay at or below its threshold, or, for the
    two `num_` rules, at or above it."""

    schema_anomalies: GateRule = GateRule()
    """Anomalies that ExampleValidator found."""

    drift: GateRule = GateRule()
    """Features that differ from the last accepted span, beyond the schema's comparators."""

    skew: GateRule = GateRule()
    """Features that differ from `serving_statistics`, beyond the schema's comparators."""

    num_documents: GateRule = GateRule()
    """Documents in all."""

    num_eval_documents: GateRule = GateRule()
    """Documents held out for evaluation."""

    invalid_utf8: GateRule = GateRule()
    """Documents that are not valid UTF-8."""

    nul: GateRule = GateRule()
    """Documents that hold a NUL character."""

    replacement_characters: GateRule = GateRule()
    """Share of U+FFFD, the sign of text that was decoded wrongly, among all characters."""

    empty: GateRule = GateRule()
    """Documents without text."""

    overlong: GateRule = GateRule()
    """Documents longer than `max_document_bytes`."""

    duplicate_ids: GateRule = GateRule()
    """Documents whose doc_id another has, too."""

    duplicates: GateRule = GateRule()
    """Share of documents whose text another of the same split has."""

    leakage: GateRule = GateRule()
    """Share of evaluation documents whose text is also trained on."""

    max_document_bytes: int = Field(16_000_000, ge=1)
    """Bytes of the longest document that is not overlong."""

    serving_statistics: str | None = None
    """A FeatureStats.pb of what the served model is asked, to find skew by. Null: none."""

    def rules(self) -> dict[str, dict[str, float | str]]:
        """By rule, what is set."""
        return {
            name: rule.model_dump(exclude_none=True)
            for name in type(self).model_fields
            if isinstance(rule := getattr(self, name), GateRule)
        }


class TokenizerConfig(Section):
    """The SentencePiece BPE tokenizer; its size is `model.vocab_size`."""

    split_digits: bool = False
    """Every digit is a piece of its own."""

    max_words: int = Field(500_000, ge=1)
    """Most frequent words (runs between spaces and line ends) from which the pieces are learned."""

    symbols: list[str] = Field([], max_length=10_000)
    """Texts that are always one piece, such as `<|user|>`; their ids follow those of the special tokens."""

    sample_rate: float = Field(1.0, gt=0, le=1)
    """Share of the training documents from which the pieces are learned: less than 1 for a huge corpus."""

    model_file: str | None = None
    """A ready SentencePiece model to take instead of learning one. Null: learn it."""

    @model_validator(mode="after")
    def _symbols_are_possible(self) -> "TokenizerConfig":
        reserved = {"<pad>", "<unk>", "<s>", "</s>"}
        for symbol in self.symbols:
            if not symbol or not symbol.isprintable() or re.search(r"\s|\u2581|\x1a|,", symbol):
                raise ValueError(
                    f"symbols: {symbol!r} is empty or holds a space, comma, control character or U+2581; change it"
                )
            if symbol in reserved or re.fullmatch(r"<0x[0-9A-F]{2}>", symbol):
                raise ValueError(f"symbols: {symbol!r} is a special or byte piece already; choose another")
        if len(set(self.symbols)) < len(self.symbols):
            raise ValueError(f"symbols: one is given twice; each is one piece. Received: {self.symbols}")
        if self.model_file is not None and (self.symbols or self.split_digits or self.sample_rate < 1):
            raise ValueError(
                "model_file is learned already: symbols, split_digits and sample_rate have no effect; unset"
            )
        return self


class PackingConfig(Section):
    """How documents become rows of `model.seq_len` tokens."""

    policy: Literal["concat", "best_fit", "pad"] = "concat"
    """concat: documents run on and are cut at row ends; best_fit: cut only if longer than a row; pad: one per row."""

    tokens_per_shard: int = Field(16_000_000, ge=1000)
    """Tokens of a shard of rows, about; a shard is packed in memory."""


class EvaluationConfig(Section):
    """The verdict on the held-out documents."""

    max_bits_per_byte: float = Field(8.0, gt=0)
    """The model is blessed if its bits per byte over all held-out documents are at most this."""

    max_bits_per_byte_increase: float | None = Field(0.02, ge=0)
    """And if they are at most this much above those of the model that is served (BaselineModel), which are measured
    over the same documents, so whatever its tokenizer. Null: not compared. `run --rebaseline` accepts a worse one."""

    max_source_bits_per_byte: float | None = Field(None, gt=0)
    """The same limit for each `source`. Null: none."""

    max_source_bits_per_byte_increase: float | None = Field(None, ge=0)
    """The same comparison for each `source`. Null: none."""

    min_documents: int = Field(20, ge=1)
    """Sources with fewer held-out documents than this have no limit of their own."""

    slice_by_source: bool = True
    """Metrics for each `source` beside the overall ones."""

    @model_validator(mode="after")
    def _sources_are_measured(self) -> "EvaluationConfig":
        limits = (self.max_source_bits_per_byte, self.max_source_bits_per_byte_increase)
        if limits != (None, None) and not self.slice_by_source:
            raise ValueError("limits on sources need slice_by_source: true; set that, or unset max_source_...")
        return self


class ExportConfig(Section):
    """The proof that the exported model is the trained one, without which it is not pushed."""

    num_documents: int = Field(8, ge=1, le=1000)
    """Held-out documents that are looked at."""

    tolerance: float = Field(1e-3, gt=0)
    """Nats by which logits and -log p may differ: from the trainer's, with the cache, in a batch."""

    max_answer_s: float = Field(10.0, gt=0)
    """Seconds in which each signature answers a small request."""

    max_load_mib: float | None = Field(None, gt=0)
    """Memory that loading the model may take. Null: it is only told."""

    timeout_s: float = Field(1800.0, gt=0)
    """Seconds for all checks."""


class RegistryConfig(Section):
    """Where blessed models go: `folder/NAME/VERSION`, as TensorFlow Serving watches it."""

    folder: str = "registry"
    """Root of the registry."""

    keep_versions: int = Field(10, ge=2)
    """Newest versions that stay; the served one and its predecessor always do."""

    mirror: str | None = None
    """A place in an object store, such as gs://BUCKET/models, that holds a copy of every version for servers elsewhere.
    Null: none. It goes through TensorFlow's file system (`components/registry_pusher/mirror.py`)."""


class BeamConfig(Section):
    """How the data components run."""

    num_workers: int = Field(1, ge=1, le=256)
    """Threads or processes of Beam's direct runner."""

    running_mode: Literal["in_memory", "multi_threading", "multi_processing"] = "in_memory"
    """Mode of Beam's direct runner; in_memory is the fastest for a corpus below a gigabyte or so."""

    @model_validator(mode="after")
    def _workers_work(self) -> "BeamConfig":
        if self.num_workers > 1 and self.running_mode == "in_memory":
            raise ValueError(
                f"num_workers {self.num_workers} has no effect with running_mode in_memory, which is one thread; set "
                "running_mode: multi_processing (or multi_threading)"
            )
        return self

    @property
    def pipeline_args(self) -> list[str]:
        """Beam's own flags."""
        return [
            # The direct runner by its own name: the alias DirectRunner first tries Prism, a program that Beam
            # would fetch from the network.
            "--runner=FnApiRunner",
            f"--direct_running_mode={self.running_mode}",
            f"--direct_num_workers={self.num_workers}",
            # Nothing is sent anywhere: without this, TFX builds a source package of itself, for a second or
            # more at the start of every component, to hand to workers that the direct runner does not have.
            "--sdk_container_image=unused",
        ]


class RunConfig(Section):
    """One run: everything that decides its result, and where it is kept."""

    name: str = Field(min_length=1, max_length=40, pattern=r"^[a-z][a-z0-9-]*$")
    """Name of the pipeline and of the model: lower-case letters, digits, hyphens."""

    run_root: str = "runs"
    """Folder under which `NAME/` keeps artifacts, ML Metadata, checkpoints and logs."""

    corpus: CorpusConfig
    gate: GateConfig = GateConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    packing: PackingConfig = PackingConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    distribution: DistributionConfig = DistributionConfig()
    export: ExportConfig = ExportConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    registry: RegistryConfig = RegistryConfig()
    beam: BeamConfig = BeamConfig()

    @model_validator(mode="after")
    def _symbols_fit(self) -> "RunConfig":
        least = MIN_VOCAB_SIZE + len(self.tokenizer.symbols)
        if self.model.vocab_size < least:
            raise ValueError(
                f"model.vocab_size {self.model.vocab_size} has no room for the special and byte pieces and "
                f"{len(self.tokenizer.symbols)} tokenizer.symbols; set it to {least} or more"
            )
        return self

    @model_validator(mode="after")
    def _every_worker_has_rows(self) -> "RunConfig":
        if self.distribution.num_workers > self.train.global_batch_size:
            raise ValueError(
                f"distribution.num_workers {self.distribution.num_workers} are more than train.global_batch_size "
                f"{self.train.global_batch_size} has rows; lower the first or raise the second"
            )
        return self

    @property
    def root(self) -> Path:
        """`run_root/name`, absolute."""
        return Path(self.run_root).absolute() / self.name

    @property
    def artifact_root(self) -> Path:
        """Root of the pipeline's artifacts."""
        return self.root / "artifacts"

    @property
    def metadata_path(self) -> Path:
        """ML Metadata's SQLite file."""
        return self.root / "metadata.sqlite"

    @property
    def log_folder(self) -> Path:
        """Logs and events of the runs."""
        return self.root / "logs"

    @property
    def checkpoint_root(self) -> Path:
        """Checkpoints; one folder for each distinct training."""
        return self.root / "checkpoints"

    @property
    def gate_folder(self) -> Path:
        """The gate's latest report, and statistics of the spans that passed."""
        return self.root / "gate"

    @property
    def export_folder(self) -> Path:
        """The latest report on an export."""
        return self.root / "export"

    @property
    def documents_folder(self) -> Path:
        return Path(self.corpus.documents).absolute()

    @property
    def registry_folder(self) -> Path:
        return Path(self.registry.folder).absolute()


def load_config(path: str | os.PathLike[str], overrides: list[str] | None = None) -> RunConfig:
    """Reads a run's configuration.

    Args:
      path: a YAML file.
      overrides: `key.path=value` settings that win over the file; the value is YAML, too.

    Raises:
      ConfigError: the file cannot be read, or a key or value is wrong; one line for each fault, naming file, key,
        value and remedy.
    """
    values = _read_yaml(Path(path))
    origin = dict.fromkeys(_leaves(values), str(path))
    for override in overrides or []:
        key, value = _parse_override(override)
        _set(values, key, value, override)
        origin[key] = f"--set {override}"
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        lines = [_explain(details, origin, str(path)) for details in error.errors()]
        raise ConfigError("\n".join(lines)) from None


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key given twice, which YAML would silently resolve to the last, and reads 1e-3 as a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is no name", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


# YAML 1.1 takes 1e-3 for text, since it lacks a point; YAML 1.2 and everyone who writes learning rates do not.
_UniqueKeyLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give a run's configuration, e.g. configs/demo.yaml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    values = _parse_yaml(text, str(path))
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: holds no settings; write `key: value` lines. Received: {values!r}")
    return values


def _parse_yaml(text: str, place: str) -> Any:
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)  # a SafeLoader: builds plain values only
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigError(f"{place}{where}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{place}: not valid YAML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{place}: not valid YAML: nested too deeply") from None


def _parse_override(override: str) -> tuple[str, Any]:
    key, equals, text = override.partition("=")
    key = key.strip()
    if not equals or not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", key):
        raise ConfigError(f"--set {override}: write key=value, e.g. --set train.steps=50")
    return key, _parse_yaml(text, f"--set {override}")


def _set(values: dict[str, Any], key: str, value: Any, override: str) -> None:
    *parents, leaf = key.split(".")
    for parent in parents:
        child = values.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {override}: {parent} is not a section. Received: {parent}={child!r}")
        values = child
    values[leaf] = value


def _leaves(values: dict[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in values.items():
        found.append(f"{prefix}{key}")
        if isinstance(value, dict):
            found += _leaves(value, f"{prefix}{key}.")
    return found


def _explain(details: ErrorDetails, origin: dict[str, str], path: str) -> str:
    """One line for one fault: where it was set, the key, what is wrong, the value, the remedy."""
    parts = [str(part) for part in details["loc"]]
    key = ".".join(parts)
    place = origin.get(key, path)
    message = details["msg"].removeprefix("Value error, ")
    kind = details["type"]
    if kind == "extra_forbidden":
        known = _known_keys(parts[:-1])
        return f"{place}: {key}: unknown key; known here: {', '.join(known)}. Received: {details['input']!r}"
    if kind == "missing":
        return f"{place}: {key}: must be set; add it to the file"
    if kind == "value_error":  # our own validators say value and remedy themselves
        return f"{place}: {key or 'the whole'}: {message}"
    return f"{place}: {key}: {message[0].lower()}{message[1:]}; change it. Received: {details['input']!r}"


def _known_keys(parts: list[str]) -> list[str]:
    section: Any = RunConfig
    for part in parts:
        section = section.model_fields[part].annotation
    return list(section.model_fields)
