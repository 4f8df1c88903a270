"""The host's package index: what pip was told about it, said in uv's words, and whether it answers.

    python scripts/package_index.py environment   # prints `export NAME=value` lines for the shell
    python scripts/package_index.py reach         # exit status 1 and one line on stderr if it cannot be reached

uv does not read pip's configuration files or PIP_ variables, and a host with a mirror, a proxy or a certificate of
its own has usually told pip alone. Variables of uv's own that are set already win. Run it with an interpreter that
has pip. Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import ast
import os
import shlex
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Mapping

SYSTEM_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
CONNECT_TIMEOUT_S = 10.0


def main() -> int:
    settings = parse_pip_config(
        subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
        ).stdout
    )
    if sys.argv[1:] == ["environment"]:
        has_certificates = os.path.isfile(SYSTEM_CERTIFICATES)
        for name, value in uv_environment(settings, os.environ, has_certificates=has_certificates).items():
            print(f"export {name}={shlex.quote(value)}")
        return 0
    if sys.argv[1:] == ["reach"]:
        problem = unreachable(settings, os.environ)
        if problem:
            print(f"error: {problem}", file=sys.stderr)
        return 1 if problem else 0
    print(__doc__, file=sys.stderr)
    return 2


def parse_pip_config(listing: str) -> dict[str, str]:
    """The settings that `pip install` uses, from the lines of `pip config list`.

    A key stands in several sections; the environment wins over `install`, and `install` over `global`, as in pip.
    """
    settings: dict[str, str] = {}
    for section in ("global", "install", ":env:"):
        for line in listing.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(section + "."):
                settings[name[len(section) + 1 :]] = str(ast.literal_eval(value))
    return settings


def uv_environment(
    settings: Mapping[str, str], environ: Mapping[str, str], *, has_certificates: bool
) -> dict[str, str]:
    """The variables that make uv, and pip beside it, use the same index as pip does by itself.

    Args:
        settings: pip's, as `parse_pip_config` gives them.
        environ: what is set already.
        has_certificates: the system keeps a bundle of trusted certificates, to which an
            administrator adds the organisation's own.
    """
    wanted: dict[str, str] = {}
    if settings.get("index-url") and "UV_INDEX_URL" not in environ:
        wanted["UV_DEFAULT_INDEX"] = settings["index-url"]
    if settings.get("no-index") in ("1", "true", "True"):
        wanted["UV_NO_INDEX"] = "1"
    if settings.get("extra-index-url"):
        wanted["UV_INDEX"] = " ".join(settings["extra-index-url"].split())
        # pip's way: the same package may come from any index. The locked hashes decide what is accepted.
        wanted["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    # uv refuses a folder that does not exist; pip passes over it.
    links = [
        link
        for link in settings.get("find-links", "").split()
        if "://" in link or os.path.isdir(os.path.expanduser(link))
    ]
    if links:
        wanted["UV_FIND_LINKS"] = ",".join(links)
    if settings.get("trusted-host"):
        wanted["UV_INSECURE_HOST"] = " ".join(settings["trusted-host"].split())
    if settings.get("proxy"):
        wanted["ALL_PROXY"] = settings["proxy"]
    if settings.get("timeout") or settings.get("default-timeout"):
        wanted["UV_HTTP_TIMEOUT"] = str(int(float(settings.get("timeout") or settings["default-timeout"])))
    if settings.get("cert"):
        wanted["SSL_CERT_FILE"] = settings["cert"]
    elif has_certificates:
        wanted["UV_SYSTEM_CERTS"] = "true"
        wanted["PIP_CERT"] = SYSTEM_CERTIFICATES
    return {name: value for name, value in wanted.items() if not environ.get(name)}


def unreachable(settings: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """Why the index, or the proxy before it, takes no connection; None if it does.

    One connection is tried for ten seconds. Installers would try for minutes, and end in a page of text.
    """
    index = (
        environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or settings.get("index-url") or _default_index()
    )
    url = urllib.parse.urlsplit(index)
    if url.scheme not in ("http", "https") or not url.hostname or settings.get("no-index") in ("1", "true", "True"):
        return None
    proxies = urllib.request.getproxies()
    proxy = settings.get("proxy") or proxies.get(url.scheme) or proxies.get("all")
    name = f"package index {url.hostname}"
    if proxy and not urllib.request.proxy_bypass(url.hostname):
        url = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        name += f" (through the proxy {url.hostname})"
    try:
        port = url.port or (443 if url.scheme == "https" else 80)
        socket.create_connection((url.hostname or "", port), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return f"the {name} cannot be reached ({reason}); check the network, the proxy and pip's index settings"
    return None


def _default_index() -> str:
    """The index that pip uses when nobody says otherwise, as pip itself knows it."""
    from pip._internal.models.index import PyPI

    return PyPI.simple_url


if __name__ == "__main__":
    sys.exit(main())
