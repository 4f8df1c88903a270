"""The locks hold every declared dependency, each with hashes, and no index's address."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

PROJECT = Path(__file__).parents[2]


def pins(lock: Path) -> dict[str, tuple[Version, int]]:
    """Name to version and number of hashes."""
    blocks = re.split(r"\n(?=[a-z0-9])", lock.read_text())
    found = (re.match(r"([a-z0-9._-]+)==(\S+)", block) for block in blocks)
    return {m[1]: (Version(m[2]), block.count("--hash=sha256:")) for m, block in zip(found, blocks, strict=True)}


def requirements(section: str) -> list[Requirement]:
    """The quoted requirements of one list of pyproject.toml (tomllib is not in Python 3.10)."""
    text = (PROJECT / "pyproject.toml").read_text()
    body = re.search(rf"^{section} = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)[1]
    return [Requirement(quoted) for quoted in re.findall(r'^\s*"([^"]+)"', body, re.MULTILINE)]


@pytest.mark.parametrize("name", ["requirements.lock", "scripts/setup-requirements.lock"])
def test_every_pin_has_hashes_and_none_an_address(name):
    assert "://" not in (PROJECT / name).read_text()
    assert all(hashes >= 1 for _, hashes in pins(PROJECT / name).values())


@pytest.mark.parametrize(
    ("section", "lock"),
    [("dependencies", "requirements.lock"), ("dev", "requirements.lock"), ("setup", "scripts/setup-requirements.lock")],
)
def test_what_pyproject_declares_is_locked_within_its_range(section, lock):
    locked = pins(PROJECT / lock)
    for requirement in requirements(section):
        version, _ = locked[requirement.name.lower()]
        assert version in requirement.specifier, requirement


def test_nothing_locked_needs_a_compiler():
    assert "pyfarmhash" not in pins(PROJECT / "requirements.lock")
