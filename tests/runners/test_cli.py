"""The command line: errors are one message and an exit code, never a traceback; it starts without TensorFlow."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEMO = str(ROOT / "configs" / "demo.yaml")


def tokenmill(*arguments, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-m", "runners.cli.app", *arguments], capture_output=True, text=True, cwd=cwd, timeout=120
    )


def test_show_prints_every_setting_and_reads_back(tmp_path):
    shown = tokenmill("config", "show", "--config", DEMO, "--set", "train.steps=77")
    values = yaml.safe_load(shown.stdout)
    assert (shown.returncode, values["train"]["steps"], values["train"]["beta1"]) == (0, 77, 0.9)
    (tmp_path / "again.yaml").write_text(shown.stdout)
    assert tokenmill("config", "show", "--config", str(tmp_path / "again.yaml")).stdout == shown.stdout


def test_check_says_ok():
    checked = tokenmill("config", "check", "--config", DEMO)
    assert (checked.returncode, checked.stdout) == (0, f"{DEMO}: ok (run demo)\n")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["config", "check", "--config", DEMO, "--set", "train.stps=3"], 2, "train.stps: unknown key"),
        (["config", "check", "--config", "nowhere.yaml"], 2, "nowhere.yaml: no such file"),
        (["run", "--config", DEMO, "--set", "model.num_heads=3"], 2, "num_heads 3 does not divide width 256"),
        (["run", "--config", DEMO], 3, "holds no documents (corpus.documents); make some: tokenmill ingest"),
        (["run", "--config", DEMO, "--set", "corpus.span=7"], 3, "holds no documents of span 7"),
        (["run", "--config", DEMO, "--from", "Trainr"], 7, "no component named 'Trainr'; known: CorpusGen, "),
        (["run", "--config", DEMO, "--set", "beam.num_workers=2"], 2, "has no effect with running_mode in_memory"),
        (["generate", "--prompt", "x", "--model", ".", "--seed", "3000000000"], 2, "--seed"),
        (["ingest", "--out", "data"], 2, "nothing to ingest"),
        (["rows", "--config", DEMO], 2, "give either --step N or --doc DOC_ID"),
        (["rows", "--config", DEMO, "--step", "1"], 7, "nothing has run yet; run: tokenmill run"),
        (["generate", "--prompt", "x"], 2, "give either --config FILE or --model FOLDER"),
        (["generate", "--prompt", "x", "--model", "."], 6, "holds no SavedModel"),
        (["generate", "--prompt", "x", "--config", DEMO], 6, "no model was pushed yet"),
        (["generate", "--prompt", "x", "--model", ".", "--top-p", "1.5"], 2, "--top-p"),
    ],
)
def test_a_mistake_is_one_message_and_an_exit_code(arguments, exit_code, message, tmp_path):
    result = tokenmill(*arguments, cwd=tmp_path)
    assert result.returncode == exit_code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_the_version_is_told():
    assert tokenmill("--version").stdout.startswith("tokenmill 0.")


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_run_that_is_interrupted_says_how_to_go_on(tmp_path, number, exit_code):
    """By the signal of a terminal, of a scheduler, and of a terminal that was closed."""
    (tmp_path / "data/demo/span-1").mkdir(parents=True)
    (tmp_path / "data/demo/span-1/documents-00000-of-00001.tfrecord").touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "runners.cli.app", "run", "--config", DEMO],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    first = process.stdout.readline()
    started = process.stdout.readline()
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert first.startswith("demo  log: ") and "starting TensorFlow Extended" in started
    assert process.returncode == exit_code
    assert "The same command goes on" in output
    assert errors == "interrupted; everything that was started has been ended\n"


def test_a_run_root_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "data/demo/span-1").mkdir(parents=True)
    (tmp_path / "data/demo/span-1/documents-00000-of-00001.tfrecord").touch()
    (tmp_path / "file").touch()
    result = tokenmill("run", "--config", DEMO, "--set", "run_root=file", cwd=tmp_path)
    assert result.returncode == 4
    assert "file/demo: cannot be made (Not a directory); set run_root to another folder" in result.stderr


def test_starting_imports_neither_tensorflow_nor_beam():
    code = "import sys, runners.cli.app; print([m for m in ('tensorflow', 'tfx', 'apache_beam') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert result.stdout == "[]\n"


def test_ingest_tells_near_duplicates_quarantine_and_small_sizes(tmp_path):
    text = " ".join(f"word{number}" for number in range(200))
    lines = [f'{{"text": "{text}"}}', f'{{"text": "{text} more"}}', "no json", '{"text": "a\\r\\nb"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    result = tokenmill(
        *("ingest", "a.jsonl", "--out", "data", "--near-duplicates", "--on-bad", "quarantine"),
        *("--line-endings", "lf", "--shard-bytes", "1000"),
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert "data/span-1: 3 documents, 3.0 kB in" in result.stdout
    assert "1 nearly the same as an earlier one (kept)" in result.stdout
    assert "1 not taken" in result.stdout
    (kept,) = [line.strip() for line in result.stdout.splitlines() if "kept for review" in line]
    folder = tmp_path / kept.removeprefix("kept for review: ")
    assert "no json" in "".join(path.read_text() for path in folder.iterdir())
