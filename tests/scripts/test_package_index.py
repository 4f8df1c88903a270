"""scripts/package_index.py: uv is told what pip was told, and an index that is out of reach is named at once."""

import importlib.util
import socket
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location(
    "package_index", Path(__file__).parents[2] / "scripts" / "package_index.py"
)
package_index = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package_index)


@pytest.fixture(autouse=True)
def no_proxy_of_the_host(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_the_environment_wins_over_install_and_install_over_global():
    listing = (
        ":env:.index-url='https://env/simple'\n"
        "global.index-url='https://global/simple'\n"
        "global.cert='/global.pem'\n"
        "global.extra-index-url='\\nhttps://a/simple\\nhttps://b/simple'\n"
        "install.cert='/install.pem'\n"
        "download.timeout='7'\n"
    )
    assert package_index.parse_pip_config(listing) == {
        "index-url": "https://env/simple",
        "cert": "/install.pem",
        "extra-index-url": "\nhttps://a/simple\nhttps://b/simple",
    }


def test_pip_settings_in_uvs_words(tmp_path):
    settings = {
        "index-url": "https://mirror/simple",
        "extra-index-url": "\nhttps://a/simple\nhttps://b/simple",
        "find-links": f"{tmp_path} /nonexistent https://wheels/",
        "trusted-host": "mirror",
        "proxy": "http://proxy:3128",
        "default-timeout": "180",
        "cert": "/our.pem",
        "no-index": "true",
    }
    assert package_index.uv_environment(settings, {}, has_certificates=True) == {
        "UV_DEFAULT_INDEX": "https://mirror/simple",
        "UV_NO_INDEX": "1",
        "UV_INDEX": "https://a/simple https://b/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": f"{tmp_path},https://wheels/",
        "UV_INSECURE_HOST": "mirror",
        "ALL_PROXY": "http://proxy:3128",
        "UV_HTTP_TIMEOUT": "180",
        "SSL_CERT_FILE": "/our.pem",
    }


def test_variables_of_uv_that_are_set_already_win():
    settings = {"index-url": "https://mirror/simple", "timeout": "5"}
    environ = {"UV_INDEX_URL": "https://mine/simple", "UV_HTTP_TIMEOUT": "60"}
    assert package_index.uv_environment(settings, environ, has_certificates=False) == {}


def test_without_settings_the_systems_certificates_are_trusted():
    assert package_index.uv_environment({}, {}, has_certificates=True) == {
        "UV_SYSTEM_CERTS": "true",
        "PIP_CERT": "/etc/ssl/certs/ca-certificates.crt",
    }
    assert package_index.uv_environment({}, {}, has_certificates=False) == {}


@pytest.fixture
def listening_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_an_index_that_listens_is_reachable(listening_port):
    settings = {"index-url": f"http://127.0.0.1:{listening_port}/simple"}
    assert package_index.unreachable(settings, {}) is None


def test_an_index_that_refuses_is_named_with_the_reason():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # taken, but nobody listens
        settings = {"index-url": f"http://name:secret@127.0.0.1:{closed.getsockname()[1]}/simple"}
        assert package_index.unreachable(settings, {}) == (
            "the package index 127.0.0.1 cannot be reached (Connection refused); "
            "check the network, the proxy and pip's index settings"
        )
        # uv's own choice of index is what is asked, where there is one.
        assert "127.0.0.1" in package_index.unreachable({}, {"UV_DEFAULT_INDEX": settings["index-url"]})


def test_behind_a_proxy_it_is_the_proxy_that_must_answer(listening_port, monkeypatch):
    settings = {"index-url": "https://index.invalid/simple"}
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{listening_port}")
    assert package_index.unreachable(settings, {}) is None


def test_a_folder_of_packages_needs_no_network():
    assert package_index.unreachable({"no-index": "true", "index-url": "https://index.invalid/simple"}, {}) is None
    assert package_index.unreachable({"index-url": "file:///srv/simple"}, {}) is None
