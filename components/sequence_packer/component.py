"""SequencePacker, the TFX component."""

from tfx import types
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from components.sequence_packer.artifact import PackedRows
from components.sequence_packer.executor import EXAMPLES_KEY, ROWS_KEY, TRANSFORM_GRAPH_KEY, Executor
from components.sequence_packer.policies import POLICIES
from foundation.errors import ConfigError
from foundation.source_hash import source_hash

_CODE = (
    "components/sequence_packer",
    "foundation/documents.py",
    "foundation/rows.py",
    "foundation/special_tokens.py",
    "foundation/tfrecord.py",
)
"""The code that decides what is written: a change in it must not be served from the cache."""


class SequencePackerSpec(types.ComponentSpec):
    """Inputs, outputs and parameters of SequencePacker."""

    PARAMETERS = {
        "seq_len": component_spec.ExecutionParameter(type=int),
        "vocab_size": component_spec.ExecutionParameter(type=int),
        "policy": component_spec.ExecutionParameter(type=str),
        "tokens_per_shard": component_spec.ExecutionParameter(type=int),
        "code_hash": component_spec.ExecutionParameter(type=str),
    }
    INPUTS = {
        EXAMPLES_KEY: component_spec.ChannelParameter(type=standard_artifacts.Examples),
        TRANSFORM_GRAPH_KEY: component_spec.ChannelParameter(type=standard_artifacts.TransformGraph),
    }
    OUTPUTS = {ROWS_KEY: component_spec.ChannelParameter(type=PackedRows)}


class SequencePacker(base_beam_component.BaseBeamComponent):
    """Packs tokenized documents into rows of constant length, in Beam, and keeps a ledger.

    Reads the transformed Examples (`token_ids`, `num_bytes`, `doc_id`, `source`) and writes `PackedRows`:
    for every split, shards of rows that can be addressed at random (`foundation/rows.py`), a side
    index that tells which documents are in which row, and `packing.json`. Every document, token
    and byte that came in is packed or dropped with a reason; a remainder fails the component.
    """

    SPEC_CLASS = SequencePackerSpec
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(Executor)

    def __init__(
        self,
        examples: types.BaseChannel,
        transform_graph: types.BaseChannel,
        *,
        seq_len: int,
        vocab_size: int,
        policy: str,
        tokens_per_shard: int,
        code_hash: str | None = None,
    ):
        """
        Args:
          examples: `transformed_examples` of Transform.
          transform_graph: of the same Transform; its tokenizer's checksum goes into the rows' description.
          seq_len: tokens the model sees at a time; a row holds one more.
          vocab_size: pieces of the tokenizer. Decides the dtype; an id not below it fails the component.
          policy: `concat`, `best_fit` or `pad`, see `policies.py`.
          tokens_per_shard: tokens in a shard, about. Bounds the memory of a worker.
          code_hash: fingerprint of the packer's code; computed if not given.

        Raises:
          ConfigError: a parameter out of its bounds.
        """
        for name, value, least in (
            ("seq_len", seq_len, 1),
            ("vocab_size", vocab_size, 1),
            ("tokens_per_shard", tokens_per_shard, 1),
        ):
            if value < least:
                raise ConfigError(f"{name} must be at least {least}. Received: {name}={value}")
        if policy not in POLICIES:
            raise ConfigError(f"policy must be one of {', '.join(POLICIES)}. Received: policy={policy!r}")
        spec = SequencePackerSpec(
            examples=examples,
            transform_graph=transform_graph,
            seq_len=seq_len,
            vocab_size=vocab_size,
            policy=policy,
            tokens_per_shard=tokens_per_shard,
            code_hash=code_hash or source_hash(*_CODE),
            rows=types.Channel(type=PackedRows),
        )
        super().__init__(spec=spec)
