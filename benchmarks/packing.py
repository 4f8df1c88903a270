"""How fast documents become rows, and how that grows: `python -m benchmarks.packing`.

Two tables. The first is the packer itself on one core, documents in memory to shards in a
temporary folder: tokens per second of CPU time, per policy, at 1x and 10x of the documents,
interleaved, so that a busy spell of the machine hits all alike. The second is the whole component
in Beam, from gzipped examples, at 1x and 10x, each in a process of its own: seconds, peak memory,
and the tokens per second of the difference, which is what start-up does not blur.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from components.sequence_packer.documents import DocumentBatch
from components.sequence_packer.packing import pack_documents
from components.sequence_packer.policies import POLICIES
from components.sequence_packer.shards import write_shard
from foundation.rows import RowFormat

VOCAB_SIZE = 32_768
ROW_FORMAT = RowFormat.for_vocab(seq_len=1024, vocab_size=VOCAB_SIZE)
_ROWS_PER_BLOCK = 256
"""As many as a shard is written by, at this row length."""


def random_documents(num_documents: int, prefix: str = "") -> DocumentBatch:
    """Lengths are log-normal, as those of web pages and source files: median 400 tokens, mean about 820."""
    random = np.random.default_rng(len(prefix))
    lengths = np.maximum(2, random.lognormal(np.log(400), 1.2, num_documents)).astype(np.int64)
    token_ids = random.integers(4, VOCAB_SIZE, int(lengths.sum())).astype(ROW_FORMAT.dtype)
    doc_ids = [f"{prefix}{i:08d}" for i in range(num_documents)]
    return DocumentBatch.build(doc_ids, ["web"] * num_documents, 4 * lengths, lengths, token_ids)


def packer_rate(documents: DocumentBatch, policy: str) -> tuple[float, float]:
    """Million tokens per second of CPU time: of packing and making the rows, and with writing the shard too."""
    started = time.process_time()
    packing = pack_documents(documents, ROW_FORMAT, policy)
    for first in range(0, packing.num_rows, _ROWS_PER_BLOCK):
        packing.rows(first, min(first + _ROWS_PER_BLOCK, packing.num_rows))
    in_memory = time.process_time() - started
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        write_shard(Path(folder), 0, pack_documents(documents, ROW_FORMAT, policy))
        to_disk = time.process_time() - started
    millions = len(documents.token_ids) / 1e6
    return millions / in_memory, millions / to_disk


def measure_packer(num_documents: int, repeats: int) -> None:
    """Prints the first table."""
    sizes = {"1x": random_documents(num_documents), "10x": random_documents(10 * num_documents)}
    packer_rate(sizes["1x"], "concat")  # imports and first touches are nobody's speed
    rates: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(repeats):
        for policy in POLICIES:
            for size, documents in sizes.items():
                rates.setdefault((policy, size), []).append(packer_rate(documents, policy))
    print(f"packer, one core, M tokens per CPU second, median (least to most) of {repeats}; rows of 1025")
    print(
        f"{'policy':<10}{'size':<6}{'tokens':>12}  {'rows in memory':<24}{'shard and index on disk':<24}{'padding':>8}"
    )
    for (policy, size), measured in rates.items():
        columns = [
            f"{statistics.median(column):.1f} ({min(column):.1f} to {max(column):.1f})"
            for column in zip(*measured, strict=True)
        ]
        packing = pack_documents(sizes[size], ROW_FORMAT, policy)
        padding = packing.num_pad_tokens / (packing.num_rows * ROW_FORMAT.row_len)
        print(f"{policy:<10}{size:<6}{packing.num_tokens:>12,}  {columns[0]:<24}{columns[1]:<24}{padding:>8.2%}")


def write_split(folder: Path, num_documents: int, num_files: int = 4) -> int:
    """Gzipped examples as Transform writes them; returns the number of tokens."""
    import tensorflow as tf

    folder.mkdir(parents=True)
    total = 0
    for number in range(num_files):
        documents = random_documents(num_documents // num_files, prefix="x" * number)
        name = f"transformed_examples-{number:05d}-of-{num_files:05d}.gz"
        with tf.io.TFRecordWriter(str(folder / name), tf.io.TFRecordOptions("GZIP", compression_level=1)) as writer:
            for doc_id, start, length in zip(documents.doc_ids, documents.starts, documents.lengths, strict=True):
                example = tf.train.Example()
                feature = example.features.feature
                feature["token_ids"].int64_list.value.extend(documents.token_ids[start : start + length].tolist())
                feature["num_bytes"].int64_list.value.append(4 * int(length))
                feature["doc_id"].bytes_list.value.append(doc_id.encode())
                feature["source"].bytes_list.value.append(b"web")
                writer.write(example.SerializeToString())
        total += len(documents.token_ids)
    return total


def run_component(root: Path, policy: str) -> dict[str, float]:
    """Runs the executor on `root/examples` in this process."""
    from tfx.dsl.components.base.base_beam_executor import BaseBeamExecutor
    from tfx.types import artifact_utils, standard_artifacts

    from components.sequence_packer.artifact import PackedRows
    from components.sequence_packer.executor import Executor

    examples, graph, rows = standard_artifacts.Examples(), standard_artifacts.TransformGraph(), PackedRows()
    examples.uri, graph.uri, rows.uri = (str(root / name) for name in ("examples", "graph", "rows"))
    examples.split_names = artifact_utils.encode_split_names(["train"])
    args: list[Any] = ["--runner=DirectRunner", "--direct_running_mode=in_memory", "--sdk_container_image=unused"]
    executor = Executor(BaseBeamExecutor.Context(beam_pipeline_args=args, tmp_dir=str(root), unique_id="1"))
    properties = {"seq_len": 1024, "vocab_size": VOCAB_SIZE, "policy": policy, "tokens_per_shard": 1 << 22}
    before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started, started_cpu = time.perf_counter(), time.process_time()
    executor.Do({"examples": [examples], "transform_graph": [graph]}, {"rows": [rows]}, properties)
    return {
        "wall_s": time.perf_counter() - started,
        "cpu_s": time.process_time() - started_cpu,
        "before_mib": before_mib,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure_component(num_documents: int, repeats: int, policy: str) -> None:
    """Prints the second table."""
    with tempfile.TemporaryDirectory() as folder:
        tokens: dict[str, int] = {}
        results: dict[str, list[dict[str, float]]] = {}
        for size, count in (("1x", num_documents), ("10x", 10 * num_documents)):
            root = Path(folder) / size
            tokens[size] = write_split(root / "examples" / "Split-train", count)
            (root / "graph" / "transform_fn" / "assets").mkdir(parents=True)
            (root / "graph" / "transform_fn" / "assets" / "spm").write_bytes(b"benchmark")
        for _ in range(repeats):
            for size in tokens:
                command = [sys.executable, "-m", "benchmarks.packing", "--component", f"{folder}/{size}", policy]
                answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
                results.setdefault(size, []).append(json.loads(answer))
    print(f"\ncomponent in Beam, {policy}, one worker, median (least to most) of {repeats}")
    print(f"{'size':<6}{'tokens':>12}  {'wall s':<22}{'CPU s':<22}{'peak MiB':>10}{'of it before':>14}")
    medians = {}
    for size, measured in results.items():
        columns = {name: [result[name] for result in measured] for name in measured[0]}
        medians[size] = {name: statistics.median(values) for name, values in columns.items()}
        shown = [
            f"{medians[size][name]:.2f} ({min(columns[name]):.2f} to {max(columns[name]):.2f})"
            for name in ("wall_s", "cpu_s")
        ]
        memory = f"{medians[size]['peak_mib']:>10.0f}{medians[size]['before_mib']:>14.0f}"
        print(f"{size:<6}{tokens[size]:>12,}  {shown[0]:<22}{shown[1]:<22}{memory}")
    for name, unit in (("wall_s", "second"), ("cpu_s", "CPU second")):
        rate = (tokens["10x"] - tokens["1x"]) / (medians["10x"][name] - medians["1x"][name]) / 1e6
        print(f"beyond start-up: {rate:.2f} M tokens per {unit}")


def main() -> None:
    """Parses the command line and prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2_000, help="documents at 1x, 820 tokens each (default 2000)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--policy", choices=list(POLICIES), default="concat", help="of the second table")
    parser.add_argument("--component", nargs=2, metavar=("FOLDER", "POLICY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.component:
        print(json.dumps(run_component(Path(options.component[0]), options.component[1])))
        return
    measure_packer(options.documents, options.repeats)
    measure_component(options.documents, options.repeats, options.policy)


if __name__ == "__main__":
    main()
