"""The files for TensorFlow Serving parse, and mean what the server's defaults are."""

from pathlib import Path

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from foundation.errors import ConfigError
from serving.settings import Batching, read_batching

FOLDER = Path(__file__).parents[2] / "deploy" / "serving"


def test_batching_parameters_are_the_defaults():
    assert read_batching(FOLDER / "batching_parameters.txt") == Batching()


def test_models_config_is_a_model_server_config():
    config = text_format.Parse((FOLDER / "models.config").read_text(), model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path) == ("demo", "/models/demo")
    assert model.model_version_policy.latest.num_versions == 1


def test_impossible_parameters_are_refused(tmp_path):
    path = tmp_path / "parameters.txt"
    path.write_text("max_batch_size { value: 8 }\nallowed_batch_sizes: 4\n")
    with pytest.raises(ConfigError, match="end with max_batch_size"):
        read_batching(path)
    path.write_text("max_batch { value: 8 }")
    with pytest.raises(ConfigError, match="not a file of batching parameters"):
        read_batching(path)
