"""scripts/find_python.sh: the best-tested interpreter first, the real one behind links, one line if there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "find_python.sh"


@pytest.fixture
def find_python(tmp_path):
    """Runs the script with the interpreters of tmp_path/bin alone on the path."""
    (tmp_path / "bin").mkdir()

    def run(**environment):
        return subprocess.run(
            ["/bin/bash", SCRIPT],
            env={"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path), **environment},
            capture_output=True,
            text=True,
            timeout=30,
        )

    return run


def put_interpreter(folder: Path, name: str, *answer: str) -> Path:
    """A program that answers the script's questions as an interpreter of that kind would."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    lines = "\n".join(answer)
    path.write_text(f"#!/bin/bash\nprintf '%s\\n' '{lines}'\n" if answer else "#!/bin/bash\nexit 127\n")
    path.chmod(0o755)
    return path


def test_without_an_interpreter_one_line_says_what_to_install(find_python):
    result = find_python()
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "error: no CPython 3.10 to 3.13 on PATH or in pyenv; install one "
        "(Debian, Ubuntu: apt-get install python3 python3-venv) or set TOKENMILL_PYTHON=/path/to/python3\n"
    )


def test_3_11_is_preferred_and_a_shim_of_an_absent_version_passed_over(find_python, tmp_path):
    put_interpreter(tmp_path / "bin", "python3.13", "/usr/bin/python3.13", "3.13", "2.41", "/usr/lib", "")
    put_interpreter(tmp_path / "bin", "python3.10", "/usr/bin/python3.10", "3.10", "2.41", "/usr/lib", "")
    assert find_python().stdout == "/usr/bin/python3.10\n3.10\n2.41\n/usr/lib\n"
    put_interpreter(tmp_path / "bin", "python3.11")
    assert find_python().stdout.splitlines()[1] == "3.10"
    put_interpreter(tmp_path / "bin", "python3.11", "/opt/python3.11", "3.11", "2.36", "/opt/lib", "")
    assert find_python().stdout == "/opt/python3.11\n3.11\n2.36\n/opt/lib\n"


def test_a_version_that_pyenv_holds_but_does_not_activate_is_found(find_python, tmp_path):
    put_interpreter(tmp_path / "bin", "python3.11")
    put_interpreter(tmp_path / ".pyenv/versions/3.11.7/bin", "python3.11", "/real/python3.11", "3.11", "2.36", "/l", "")
    assert find_python().stdout.splitlines()[0] == "/real/python3.11"


def test_what_an_unfit_interpreter_lacks_is_said(find_python, tmp_path):
    lacks = "has no venv module (Debian, Ubuntu: apt-get install python3.11-venv)"
    path = put_interpreter(tmp_path / "bin", "python3.11", "/usr/bin/python3.11", "3.11", "2.36", "/usr/lib", lacks)
    result = find_python()
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert f"no usable CPython 3.10 to 3.13: {path} {lacks};" in result.stderr


def test_the_real_interpreter_behind_a_link_is_reported(find_python, tmp_path):
    # A link in bin/ to the interpreter that .venv was made from, which fits by definition.
    base = Path(os.path.realpath(sys._base_executable))
    (tmp_path / "bin" / "python3.11").symlink_to(base)
    result = find_python(TOKENMILL_PYTHON=str(tmp_path / "bin" / "python3.11"))
    if base.is_relative_to(SCRIPT.parents[1]):  # our own copy: an environment is not made from itself
        assert result.returncode == 1
    else:
        assert result.stdout.splitlines()[:2] == [str(base), f"{sys.version_info.major}.{sys.version_info.minor}"]


def test_an_interpreter_that_was_asked_for_is_the_only_one_tried(find_python, tmp_path):
    put_interpreter(tmp_path / "bin", "python3.11", "/usr/bin/python3.11", "3.11", "2.36", "/usr/lib", "")
    result = find_python(TOKENMILL_PYTHON="/nonexistent/python3")
    assert result.returncode == 1
    assert result.stderr == (
        "error: TOKENMILL_PYTHON=/nonexistent/python3 does not run; give a CPython 3.10 to 3.13 with venv\n"
    )
