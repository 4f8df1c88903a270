"""The PyTorch side of `benchmarks.learning`: a small GPT as its best-known trainer writes it. Runs in PyTorch's
environment; reads windows that the benchmark has made."""

import json
import math
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "train_step"))

import numpy as np
import torch
from torch_contestant import Model

LEARNING_RATE, WARMUP, WEIGHT_DECAY, BETAS = 1e-3, 100, 0.1, (0.9, 0.99)


def main(folder: pathlib.Path, batch: int) -> None:
    """Trains once over the windows; prints held-out loss and seconds."""
    torch.manual_seed(0)
    rows = torch.from_numpy(np.load(folder / "train.npy").astype(np.int64))
    held_out = torch.from_numpy(np.load(folder / "eval.npy").astype(np.int64))
    started = time.perf_counter()
    shape = {"vocab_size": 256, "seq_len": rows.shape[1] - 1, "width": 128, "num_layers": 4, "num_heads": 4}
    model = Model(shape)
    decays = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
    groups = [{"params": decays, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, fused=True)
    loss_of = torch.compile(model)
    steps = len(rows) // batch
    for step in range(steps):
        warm = min(1.0, (step + 1) / WARMUP)
        fall = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * warm * fall
        loss = loss_of(rows[step * batch : (step + 1) * batch])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        parts = held_out.split(256)
        total = sum(float(model(part)) * len(part) for part in parts)
    print(json.dumps({"loss": total / len(held_out), "seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
