"""The whole line on a small corpus: files -> documents -> tokenizer -> rows -> model -> verdict -> registry -> answer.

Each step is the command that a user types, in a process of its own; the tests look at what is left behind.
"""

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from ml_metadata import MetadataStore
from ml_metadata.proto import metadata_store_pb2

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = [
    "CorpusGen",
    "StatisticsGen",
    "SchemaGen",
    "ImportSchemaGen",
    "ExampleValidator",
    "CorpusGate",
    "Transform",
    "SequencePacker",
    "BaselineModel",
    "DistributedTrainer",
    "ExportValidator",
    "Evaluator",
    "RegistryPusher",
    "EvaluationReport",
]
CONFIGURATION = """
name: tiny
corpus: {documents: data, hash_buckets: 4}
model: {vocab_size: 400, seq_len: 32, num_layers: 1, width: 32, num_heads: 2}
train: {steps: 12, warmup_steps: 2, global_batch_size: 8, log_every: 4, eval_every: 6, learning_rate: 1e-2}
evaluation: {max_bits_per_byte: 7.9}
"""


def tokenmill(folder, *arguments, expect=0):
    result = subprocess.run(
        [sys.executable, "-m", "runners.cli.app", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        timeout=600,
    )
    assert result.returncode == expect, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


def states(folder):
    """How often executions of each component ended in each state."""
    connection = metadata_store_pb2.ConnectionConfig()
    connection.sqlite.filename_uri = str(folder / "runs" / "tiny" / "metadata.sqlite")
    connection.sqlite.connection_mode = metadata_store_pb2.SqliteMetadataSourceConfig.READONLY
    counts: dict[str, int] = {}
    for execution in MetadataStore(connection).get_executions():
        state = metadata_store_pb2.Execution.State.Name(execution.last_known_state)
        counts[state] = counts.get(state, 0) + 1
    return counts


def told(output):
    """What each component is said to have done: `running (why)`, `cached`."""
    lines = [line.split(": ", 1) for line in output.splitlines() if ": " in line]
    said: dict[str, str] = {}
    for name, text in lines:
        if name in COMPONENTS:
            said.setdefault(name, text)
    return said


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    """Everything run once: ingest, two equal runs, one with more steps, the first again, which is worse, the same
    accepted on purpose, once more with Beam told otherwise, and one that must not be blessed."""
    folder = tmp_path_factory.mktemp("line")
    (folder / "tiny.yaml").write_text(CONFIGURATION)
    stdlib = Path(sysconfig.get_path("stdlib"))
    sources = [str(stdlib / name) for name in ("json", "email", "urllib", "collections", "html")]
    tokenmill(folder, "ingest", *sources, "--out", "data")
    first = tokenmill(folder, "run", "--config", "tiny.yaml")
    after_first = states(folder)
    second = tokenmill(folder, "run", "--config", "tiny.yaml")
    after_second = states(folder)
    more = tokenmill(folder, "run", "--config", "tiny.yaml", "--set", "train.steps=16")
    worse = tokenmill(folder, "run", "--config", "tiny.yaml", expect=8)
    back = tokenmill(folder, "run", "--config", "tiny.yaml", "--rebaseline")
    after_back = tokenmill(folder, "run", "--config", "tiny.yaml")
    workers = ("--set", "beam.running_mode=multi_threading", "--set", "beam.num_workers=2")
    other_beam = tokenmill(folder, "run", "--config", "tiny.yaml", *workers)
    strict = tokenmill(folder, "run", "--config", "tiny.yaml", "--set", "evaluation.max_bits_per_byte=0.5", expect=8)
    return SimpleNamespace(
        folder=folder,
        first=first,
        second=second,
        more=more,
        worse=worse,
        back=back,
        after_back=after_back,
        other_beam=other_beam,
        strict=strict,
        after_first=after_first,
        after_second=after_second,
        rows=next((folder / "runs/tiny/artifacts/SequencePacker/rows").iterdir()),
    )


def test_the_first_run_runs_everything(line):
    assert told(line.first) == dict.fromkeys(COMPONENTS, "running (first run)")
    assert line.after_first == {"COMPLETE": 14}
    assert "The model is blessed: overall: bits_per_byte" in line.first
    assert "Pushed as version 1" in line.first


def test_the_second_run_is_all_cached(line):
    assert told(line.second) == dict.fromkeys(COMPONENTS, "cached")
    assert line.after_second == {"COMPLETE": 14, "CACHED": 14}


def test_more_steps_run_again_what_depends_on_them(line):
    said = told(line.more)
    again = {name for name, text in said.items() if text != "cached"}
    assert again == {
        "BaselineModel",
        "DistributedTrainer",
        "ExportValidator",
        "Evaluator",
        "RegistryPusher",
        "EvaluationReport",
    }
    assert said["BaselineModel"] == "running (the served model changed)"
    assert "below the baseline's" in line.more
    assert said["DistributedTrainer"] == "running (train.steps changed)"
    assert "Pushed as version 2" in line.more


def test_a_model_worse_than_the_served_one_is_refused(line):
    """The first settings again: their model comes from the cache, and is judged against the better one."""
    said = told(line.worse)
    assert {name for name, text in said.items() if text != "cached"} == {
        "BaselineModel",
        "Evaluator",
        "RegistryPusher",
        "EvaluationReport",
    }
    assert "The model is not blessed: overall: bits_per_byte" in line.worse
    assert "above the baseline's" in line.worse and "at most 0.0200 above it is allowed" in line.worse
    assert "Nothing was pushed" in line.worse


def test_a_worse_model_can_be_accepted_on_purpose_and_becomes_the_baseline(line):
    assert "accepted on purpose (--rebaseline): bits_per_byte is" in line.back
    assert "Pushed as version 3" in line.back
    manifest = json.loads((line.folder / "registry/tiny/3/manifest.json").read_text())
    assert manifest["evaluation"]["rebaselined"] is True
    assert manifest["baseline"]["version"] == 2
    assert "The model is blessed" in line.after_back and "Served already, as version 3" in line.after_back


def test_a_rollback_is_what_answers_and_is_not_undone_by_the_next_run(line, tmp_path):
    """On a copy of the registry, so that the other tests find theirs."""
    shutil.copytree(line.folder / "registry", tmp_path / "registry")
    elsewhere = ("--set", f"registry.folder={tmp_path / 'registry'}")
    said = tokenmill(line.folder, "registry", "rollback", "--config", "tiny.yaml", *elsewhere)
    assert "version 4 is served now: version 2 again, instead of 3" in said
    assert "Nothing was pushed: this model was served and rolled back" in tokenmill(
        line.folder, "run", "--config", "tiny.yaml", "--rebaseline", *elsewhere
    )
    assert sorted(path.name for path in (tmp_path / "registry" / "tiny").iterdir()) == ["1", "2", "3", "4"]


def test_the_report_of_the_last_evaluation_is_found(line):
    page = Path(tokenmill(line.folder, "report", "--config", "tiny.yaml", "--no-open").strip())
    text = page.read_text()
    assert "tiny: the model is" in text and "<polyline" in text
    assert len(json.loads(page.with_suffix(".json").read_text())["samples"]) == 10


def test_how_beam_runs_decides_nothing(line):
    assert told(line.other_beam) == dict.fromkeys(COMPONENTS, "cached")
    assert "Served already, as version 3" in line.other_beam


def test_the_documents_of_a_step_are_told_decoded(line):
    """Every stretch is what the document has there; a document's stretches are all of it."""
    told_of_step = [
        json.loads(text)
        for text in tokenmill(line.folder, "rows", "--config", "tiny.yaml", "--step", "3", "--json").splitlines()
    ]
    assert len({found["row"] for found in told_of_step}) == 8  # the batch
    stdlib = Path(sysconfig.get_path("stdlib"))
    for found in told_of_step:
        text = (stdlib / found["doc_id"]).read_bytes().decode()
        assert found["text"].strip("\ufffd") in text  # a row may begin or end inside a character
    doc_id = told_of_step[0]["doc_id"]
    stretches = [
        json.loads(text)
        for text in tokenmill(line.folder, "rows", "--config", "tiny.yaml", "--doc", doc_id, "--json").splitlines()
    ]
    assert stretches[0]["token_start"] == 0
    assert all(one["token_end"] == next_one["token_start"] for one, next_one in itertools.pairwise(stretches))
    assert "".join(found["text"] for found in stretches) == (stdlib / doc_id).read_text()


def test_a_corpus_that_breaks_a_blocking_rule_is_not_learned_from(line):
    """Failed before Transform, with the rule, both numbers, and a report that outlives the failure."""
    before = states(line.folder)
    result = subprocess.run(
        [
            *(sys.executable, "-m", "runners.cli.app", "run", "--config", "tiny.yaml"),
            *("--set", "gate.num_documents.threshold=5000"),
        ],
        capture_output=True,
        text=True,
        cwd=line.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        timeout=600,
    )
    assert result.returncode == 3
    said = told(result.stdout)
    assert said["CorpusGate"] == "running (gate.num_documents.threshold changed)"
    assert "Transform" not in said
    assert "is below 5000 (documents in all)" in result.stderr
    assert states(line.folder)["FAILED"] == before.get("FAILED", 0) + 1
    page = line.folder / "runs/tiny/gate/latest/report.html"
    assert str(page) in result.stderr
    assert "blocked" in page.read_text()


def test_a_model_that_misses_its_threshold_is_not_pushed(line):
    assert "The model is not blessed: overall: bits_per_byte" in line.strict
    assert "Nothing was pushed" in line.strict
    versions = {path.name for path in (line.folder / "registry/tiny").iterdir() if path.name.isdigit()}
    assert versions == {"1", "2", "3"}


def test_a_blessed_model_whose_export_fails_a_check_is_not_pushed(line):
    said = tokenmill(line.folder, "run", "--config", "tiny.yaml", "--set", "export.max_answer_s=1e-6", expect=8)
    again = {name for name, text in told(said).items() if text != "cached"}
    assert again == {"ExportValidator", "RegistryPusher"}
    assert "The model is blessed" in said
    assert "But the export is not valid and will not be pushed: times: slower than 1e-06 s: " in said
    assert "Nothing was pushed" in said
    versions = {path.name for path in (line.folder / "registry/tiny").iterdir() if path.name.isdigit()}
    assert versions == {"1", "2", "3"}
    report = json.loads((line.folder / "runs/tiny/export/report.json").read_text())
    assert [check["name"] for check in report["checks"] if not check["passed"]] == ["times"]


def test_every_document_is_in_exactly_one_split_and_every_token_is_accounted_for(line):
    ingested = json.loads((line.folder / "data/span-1/ingest.json").read_text())
    ids = {}
    for split in ("train", "eval"):
        folder = line.rows / f"Split-{split}"
        ledger = json.loads((folder / "packing.json").read_text())["ledger"]
        tables = [pq.read_table(path) for path in sorted(folder.glob("index-*.parquet"))]
        ids[split] = {doc_id for table in tables for doc_id in table["doc_id"].to_pylist()}
        indexed = sum(
            end - start
            for table in tables
            for start, end in zip(table["token_start"].to_pylist(), table["token_end"].to_pylist(), strict=True)
        )
        assert ledger["documents_in"] == ledger["documents_packed"] == len(ids[split])
        assert ledger["tokens_in"] == ledger["tokens_packed"] == indexed > 0
    assert not ids["train"] & ids["eval"]
    assert len(ids["train"] | ids["eval"]) == _count_of(ingested)


def _count_of(ingested):
    (count,) = {value for key, value in _flat(ingested) if key == "num_documents"}
    return count


def _flat(values):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield key, value


CLIENT = """
import json, sys
import tensorflow as tf, tensorflow_text
for name in ("trainer_module", "foundation", "components"):
    try:
        __import__(name)
    except ImportError:
        continue
    sys.exit(name + " can be imported: the test proves nothing")
model = tf.saved_model.load(sys.argv[1])
texts = [
    tf.train.Example.FromString(record.numpy()).features.feature["text"].bytes_list.value[0]
    for record in tf.data.TFRecordDataset(tf.io.gfile.glob(sys.argv[2]), compression_type="GZIP")
]
scores = model.signatures["score"](text=tf.constant(texts))
back = model.signatures["detokenize"](token_ids=model.signatures["tokenize"](text=tf.constant(texts))["token_ids"])
print(json.dumps({
    "documents": len(texts),
    "round_trip": back["text"].numpy().tolist() == texts,
    "nll": float(tf.reduce_sum(tf.cast(scores["nll"], tf.float64))),
    "bytes": int(tf.reduce_sum(scores["num_bytes"])),
}))
"""


def test_the_pushed_model_alone_gives_the_evaluators_verdict(line, tmp_path):
    """In a process that cannot import the project: same held-out documents, same bits per byte, same bytes back."""
    for name in ("trainer_module", "foundation", "components"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('hidden from this test')")
    examples = next((line.folder / "runs/tiny/artifacts/CorpusGen/examples").iterdir())
    result = subprocess.run(
        [sys.executable, "-c", CLIENT, str(line.folder / "registry/tiny/1"), str(examples / "Split-eval" / "*")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    alone = json.loads(result.stdout.splitlines()[-1])
    assert alone["round_trip"]
    measured = next(text for text in line.first.splitlines() if text.startswith("all "))
    _, documents, num_bytes, _, bits_per_byte, _ = measured.split()
    assert alone["documents"] == int(documents)
    assert alone["bytes"] == int(num_bytes.replace(",", ""))
    assert alone["nll"] / math.log(2) / alone["bytes"] == pytest.approx(float(bits_per_byte), abs=6e-4)


def test_the_newest_version_answers_a_prompt(line):
    arguments = ["generate", "--config", "tiny.yaml", "--prompt", "def ", "--max-new-tokens", "8", "--seed", "3"]
    answers = [tokenmill(line.folder, *arguments) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0].startswith("def ") and len(answers[0]) > len("def \n")


def test_ingesting_the_same_again_changes_nothing(line):
    stdlib = Path(sysconfig.get_path("stdlib"))
    sources = [str(stdlib / name) for name in ("json", "email", "urllib", "collections", "html")]
    assert "up to date" in tokenmill(line.folder, "ingest", *sources, "--out", "data")
    assert [path.name for path in (line.folder / "data").glob("span-*")] == ["span-1"]


def test_two_workers_train_what_one_did_and_a_killed_one_changes_nothing(line):
    """The rows and losses of the first run; then the resume, proven on this configuration."""
    arguments = ("--config", "tiny.yaml", "--set", "train.seed=1", "--set", "train.log_every=1")
    workers = ("--set", "distribution.strategy=multi_worker", "--set", "distribution.num_workers=2")
    logs = []
    for distribution in ((), workers):
        # A training that has ended would not be repeated: each begins with none.
        shutil.rmtree(line.folder / "runs/tiny/checkpoints")
        tokenmill(line.folder, "run", *arguments, *distribution, "--to", "DistributedTrainer")
        (log,) = (line.folder / "runs/tiny/checkpoints").glob("*/train_log.jsonl")
        logs.append([json.loads(text) for text in log.read_text().splitlines()])
    one, two = ([entry for entry in log if "loss" in entry] for log in logs)
    assert [entry["rows_digest"] for entry in one] == [entry["rows_digest"] for entry in two]
    assert [entry["loss"] for entry in one] == pytest.approx([entry["loss"] for entry in two], abs=1e-5)
    proof = tokenmill(line.folder, "verify-resume", *arguments, *workers, "--kill-at", "5")
    assert "The training that was killed is, bit for bit, the one that was not." in proof
    assert "after step 10" in proof


def test_a_failing_component_is_named_with_cause_and_log(line):
    output = subprocess.run(
        [sys.executable, "-m", "runners.cli.app", "run", "--config", "tiny.yaml", "--set", "model.vocab_size=60000"],
        capture_output=True,
        text=True,
        cwd=line.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        timeout=300,
    )
    assert output.returncode == 3  # CorpusError
    assert "error: Transform: tokenizer: the training split has" in output.stderr
    assert "set model.vocab_size to " in output.stderr
    log = Path(next(part.split("log: ")[1] for part in output.stderr.splitlines() if "log: " in part))
    assert "Traceback" in log.read_text()
