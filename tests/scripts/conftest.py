"""A copy of what decides a set-up, in a folder of its own, and ways to run its scripts there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


class ProjectCopy:
    """The set-up's inputs without the project's code: enough for scripts/setup.sh to judge and to fail."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("scripts", "third_party"):
            shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "requirements.lock"):
            shutil.copy(PROJECT / name, folder)

    def run(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.environment(**environment), capture_output=True, text=True, timeout=120
        )

    def setup(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run("scripts/setup.sh", **environment)

    def in_shell(self, script: str, lines: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs shell lines among the functions of one of the scripts."""
        return self.run("bash", "-c", f"source scripts/{script}\n{lines}", **environment)

    def finish_setup(self) -> None:
        """Leaves what a finished set-up leaves, as far as the check for one looks."""
        binaries = self.folder / ".venv" / "bin"
        binaries.mkdir(parents=True)
        (binaries / "python").symlink_to(sys.executable)
        (binaries / "tokenmill").touch(mode=0o755)
        self.in_shell("setup.sh", f'python={sys.executable}\nwrite_atomically "$stamp" describe').check_returncode()

    @staticmethod
    def environment(**changes: str) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if name not in ("TOKENMILL_PYTHON", "UV_DEFAULT_INDEX")
        }
        return {**kept, **changes}


@pytest.fixture
def project(tmp_path) -> ProjectCopy:
    return ProjectCopy(tmp_path / "project")
