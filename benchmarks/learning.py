"""How low the loss gets in how long, on bytes: `python -m benchmarks.learning FILE`.

Trains a small model (4 layers, width 128, context 64, batch 12, 2,000 steps) on any text file, byte by
byte, the last tenth held out, through this project's own rows, step and loop. Prints the held-out loss in
nats per byte over the whole of the last tenth, and the wall time from the start of training, compilation
and validations included. With `--torch PYTHON` the same training runs in PyTorch afterwards, on the
same windows in the same order; with `--repeats N` the two take turns.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from foundation.rows import Ledger, PackingManifest, RowFormat

SEQ_LEN, BATCH, STEPS = 64, 12, 2000
VOCAB_SIZE = 264
NUM_SPECIAL = 4
"""Ids below are special; byte b is id b + 4."""

MODEL = {
    "vocab_size": VOCAB_SIZE,
    "seq_len": SEQ_LEN,
    "num_layers": 4,
    "width": 128,
    "num_heads": 4,
    "position": "learned",
    "mlp": "gelu",
}
TRAIN = {
    "steps": STEPS,
    "global_batch_size": BATCH,
    "learning_rate": 4e-3,
    "warmup_steps": 100,
    "schedule": "linear",
    "final_learning_rate": 0.0,
    "weight_decay": 0.05,
    "beta2": 0.99,
    "compile": "xla",
    "log_every": 200,
    "eval_every": STEPS,
    "eval_rows": 100_000,
    "checkpoint_every": STEPS,
}


def write_rows(folder: Path, windows: np.ndarray) -> Path:
    """Rows of bytes, as SequencePacker would write them: [rows, SEQ_LEN + 1] uint8."""
    from foundation.tfrecord import frame

    row_format = RowFormat.for_vocab(SEQ_LEN, VOCAB_SIZE)
    payloads = row_format.encode(windows.astype(np.int64) + NUM_SPECIAL, np.ones_like(windows, dtype=np.int64))
    manifest = PackingManifest(
        split=folder.name,
        policy="concat",
        row_format=row_format,
        vocab_size=VOCAB_SIZE,
        tokenizer_sha256="bytes",
        num_rows=len(windows),
        num_pad_tokens=0,
        num_cut_documents=0,
        tokens_by_source={},
        shard_rows=[len(windows)],
        ledger=Ledger(),
    )
    folder.mkdir(parents=True)
    (folder / manifest.shard_names[0]).write_bytes(frame(payloads).tobytes())
    manifest.save(folder)
    return folder


def windows_of(text: np.ndarray, count: int | None, seed: int = 0) -> np.ndarray:
    """`count` windows of SEQ_LEN + 1 bytes at random places; or, with None, one after another over the whole text,
    each byte but the first predicted once."""
    if count is None:
        starts = np.arange(0, len(text) - SEQ_LEN - 1, SEQ_LEN)
    else:
        starts = np.random.default_rng(seed).integers(0, len(text) - SEQ_LEN - 1, count)
    return text[starts[:, None] + np.arange(SEQ_LEN + 1)]


def train_ours(folder: Path, train_rows: Path, eval_rows: Path, overrides: dict[str, object]) -> tuple[float, float]:
    """Held-out loss in nats per byte, and seconds."""
    from trainer_module.config import ModelConfig, TrainConfig
    from trainer_module.training import train

    model, config = ModelConfig.model_validate(MODEL), TrainConfig.model_validate({**TRAIN, **overrides})
    started = time.perf_counter()
    trained = train(model, config, train_rows, eval_rows, folder / "checkpoints")
    return trained.validation_loss, time.perf_counter() - started


def train_in_process(name: str, command: list[str]) -> None:
    """Runs one side in a process of its own and prints its result."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    result = json.loads(lines[-1])
    print(f"{name:<8} held-out loss {result['loss']:.4f} nats per byte, {result['seconds']:.1f} s", flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--torch", help="python of an environment that has PyTorch")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="train setting of ours, e.g. learning_rate=1e-2")
    parser.add_argument("--side", choices=["ours"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        overrides = {key: json.loads(value) for key, _, value in (item.partition("=") for item in options.set)}
        with contextlib.redirect_stdout(sys.stderr):
            rows = options.folder / "train", options.folder / "eval"
            loss, seconds = train_ours(Path(tempfile.mkdtemp(dir=options.folder)), *rows, overrides)
        print(json.dumps({"loss": loss, "seconds": seconds}))
        return
    text = np.frombuffer(options.file.read_bytes(), dtype=np.uint8)
    border = len(text) * 9 // 10
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train = windows_of(text[:border], STEPS * BATCH)
        held_out = windows_of(text[border:], None)
        write_rows(folder / "train", train)
        write_rows(folder / "eval", held_out)
        np.save(folder / "train.npy", train)
        np.save(folder / "eval.npy", held_out)
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        settings = [argument for item in options.set for argument in ("--set", item)]
        for _ in range(options.repeats):
            command = [sys.executable, "-m", "benchmarks.learning", str(options.file), "--side", "ours"]
            train_in_process("ours", [*command, "--folder", name, *settings])
            if options.torch:
                script = Path(__file__).with_name("learning_torch.py")
                train_in_process("PyTorch", [options.torch, str(script), name, str(BATCH)])


if __name__ == "__main__":
    main()
