"""The component declares what it reads and writes, and a change of its code reaches the cache."""

from typing import Any

import pytest
from tfx.types import channel_utils, standard_artifacts

from components.sequence_packer.artifact import PackedRows
from components.sequence_packer.component import SequencePacker
from foundation.errors import ConfigError


def make(**changes: Any) -> SequencePacker:
    settings: dict[str, Any] = {"seq_len": 512, "vocab_size": 4096, "policy": "concat", "tokens_per_shard": 1 << 24}
    return SequencePacker(
        examples=channel_utils.as_channel([standard_artifacts.Examples()]),
        transform_graph=channel_utils.as_channel([standard_artifacts.TransformGraph()]),
        **{**settings, **changes},
    )


def test_outputs_and_parameters() -> None:
    component = make(code_hash="abc")
    assert component.outputs["rows"].type is PackedRows
    assert component.exec_properties == {
        "seq_len": 512,
        "vocab_size": 4096,
        "policy": "concat",
        "tokens_per_shard": 16_777_216,
        "code_hash": "abc",
    }


def test_code_hash_is_computed() -> None:
    code_hash = make().exec_properties["code_hash"]
    assert len(code_hash) == 16
    assert int(code_hash, 16)


def test_type_name_is_the_import_path() -> None:
    """Kubeflow imports the class by it."""
    assert f"{PackedRows.__module__}.{PackedRows.__qualname__}" == PackedRows.TYPE_NAME
    assert not PackedRows.PROPERTIES


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seq_len": 0}, "seq_len must be at least 1. Received: seq_len=0"),
        ({"tokens_per_shard": 0}, "tokens_per_shard must be at least 1"),
        ({"policy": "greedy"}, "policy must be one of concat, best_fit, pad. Received: policy='greedy'"),
    ],
)
def test_parameters_out_of_bounds(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make(**changes)
