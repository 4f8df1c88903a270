"""A tiny model in a registry, and a server over it in a process of its own."""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from components.registry_pusher import registry
from tests.trainer_module.conftest import tokenizer_model  # noqa: F401 - the fixture that `export_folders` takes

SAMPLING = {
    "max_new_tokens": 5,
    "temperature": 0.9,
    "top_k": 20,
    "top_p": 0.9,
    "repetition_penalty": 1.1,
    "seed": 1,
}


@pytest.fixture(scope="session")
def export_folders(tmp_path_factory, tokenizer_model):  # noqa: F811
    """Two models of one shape with different weights."""
    from trainer_module import export
    from trainer_module.config import ModelConfig
    from trainer_module.parameters import init

    config = ModelConfig(vocab_size=300, seq_len=64, num_layers=2, width=32, num_heads=4, num_kv_heads=2)
    folder = tmp_path_factory.mktemp("exports")
    for seed in (0, 1):
        export.export(folder / str(seed), config, init(config, seed), tokenizer_model, {})
    return [folder / "0", folder / "1"]


class Server:
    """A `tokenmill serve` and its addresses."""

    def __init__(self, registry_dir, *options):
        command = [sys.executable, "-m", "runners.cli.app", "serve", "--registry", str(registry_dir)]
        command += ["--model-name", "demo", "--port", "0", "--grpc-port", "0", "--poll-s", "0.1", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"version (\d+): (http://\S+)/ and gRPC (\S+)", line)
        assert found, f"the server did not start: {line!r}"
        self.url, self.grpc = found[2], found[3]

    def call(self, path, body=None, method=None):
        """Status and parsed answer."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def predict(self, *prompts, **changes):
        """Of `serving_default`."""
        rows = [{"prompt": prompt, **SAMPLING, **changes} for prompt in prompts]
        return self.call("/v1/models/demo:predict", {"instances": rows})

    def stop(self):
        """Its exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=60)
        finally:
            self.process.kill()
            self.process.stdout.close()


@pytest.fixture(scope="session")
def registry_dir(tmp_path_factory, export_folders):
    folder = tmp_path_factory.mktemp("registry")
    registry.push(folder, "demo", export_folders[0], {})
    return folder


@pytest.fixture(scope="session")
def server(registry_dir):
    server = Server(registry_dir, "--max-text-bytes", "100000")
    yield server
    server.stop()
