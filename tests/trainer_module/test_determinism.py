"""The same step from the same weights gives the same bits, however the threads happen to meet.

A resume is only as exact as this. Tiny shapes run on one thread and show nothing, so these are those of a real
model; one thread inside an operation and several operations at once make races the likeliest.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STEPS = """
import json, sys
import numpy as np
import tensorflow as tf
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.state import TrainState
from trainer_module.step import make_train_step

model = ModelConfig(vocab_size=2048, **json.loads(sys.argv[1]))
train = TrainConfig(steps=300, global_batch_size=8, **json.loads(sys.argv[2]))
token_ids = tf.constant(np.minimum(np.random.default_rng(0).zipf(1.3, (8, 257)), 2047), tf.int32)
segment_ids = tf.ones((8, 257), tf.int32)
state = TrainState(model, train)
step = make_train_step(model, train, state)
start = {name: variable.numpy() for name, variable in state.variables().items()}
results = set()
for _ in range(15):
    for name, variable in state.variables().items():
        variable.assign(start[name])
    result = step(token_ids, segment_ids)
    results.add((float(result.loss).hex(), float(result.grad_norm).hex()))
print(len(results))
"""

GPT2 = {"norm": "layernorm", "position": "learned", "mlp": "gelu", "use_bias": True, "dropout": 0.1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "train"),
    [
        pytest.param({}, {}, id="llama"),
        pytest.param(GPT2, {}, id="gpt2"),
        pytest.param({}, {"gradient_checkpointing": "attention", "precision": "bfloat16"}, id="recomputed"),
    ],
)
def test_a_graph_gives_the_same_bits_again(model, train):
    """15 steps from the same weights: with gradients added up in an order left to chance, 1 to 14 of them differ."""
    arguments = [json.dumps(model), json.dumps({"compile": "graph", **train})]
    printed = subprocess.run(
        [sys.executable, "-c", STEPS, *arguments],
        stdout=subprocess.PIPE,
        check=True,
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "4"},
        timeout=300,
    ).stdout
    assert printed == b"1\n"
