"""Ten steps of GPT-2's architecture give the weights of an independent implementation: NumPy, float64.

Its forward and backward passes are written from the papers, one document at a time, and its backward pass is
itself checked against finite differences.
"""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer_module.test_model import noisy
from trainer_module.config import ModelConfig, TrainConfig
from trainer_module.parameters import init
from trainer_module.state import TrainState
from trainer_module.step import make_train_step

CONFIG = ModelConfig(
    vocab_size=300,
    seq_len=8,
    num_layers=2,
    width=16,
    num_heads=2,
    norm="layernorm",
    position="learned",
    mlp="gelu",
    use_bias=True,
)
EPSILON = CONFIG.norm_epsilon
SETTINGS = {
    "steps": 10,
    "warmup_steps": 3,
    "global_batch_size": 2,
    "learning_rate": 1e-2,
    "final_learning_rate": 0.2,
    "weight_decay": 0.3,
    "clip_norm": 0.5,
}


def layer_norm(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    normal = centred * inverse

    def backward(upstream):
        inner = upstream * scale
        gradient = inverse * (inner - inner.mean(-1, keepdims=True) - normal * (inner * normal).mean(-1, keepdims=True))
        return gradient, (upstream * normal).sum(0), upstream.sum(0)

    return normal * scale + bias, backward


def gelu(x):
    """The tanh approximation, and its derivative."""
    root = math.sqrt(2 / math.pi)
    t = np.tanh(root * (x + 0.044715 * x**3))
    slope = 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * root * (1 + 3 * 0.044715 * x**2)
    return 0.5 * x * (1 + t), slope


def attend(q, k, v):
    """q, k, v: [T, heads, E]. Causal attention of one document, and its gradients."""
    scale = 1 / math.sqrt(q.shape[2])
    scores = np.einsum("the,she->hts", q, k) * scale
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)

    def backward(upstream):
        of_weights = np.einsum("the,she->hts", upstream, v)
        of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) * scale
        return (
            np.einsum("hts,she->the", of_scores, k),
            np.einsum("hts,the->she", of_scores, q),
            np.einsum("hts,the->she", weights, upstream),
        )

    return np.einsum("hts,she->the", weights, v), backward


def document_loss(params, tokens):
    """Summed -log p of a document's tokens but the first, and its gradient by parameter."""
    inputs, targets = tokens[:-1], tokens[1:]
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    length = len(inputs)
    x = params["embedding"][inputs] + params["position"][:length]
    backwards = []
    for layer in range(CONFIG.num_layers):
        p = {name: params[f"blocks/{layer}/{name}"] for name in BLOCK}
        h, norm_back = layer_norm(x, p["attention_norm/scale"], p["attention_norm/bias"])
        q, k, v = (np.einsum("td,dhe->the", h, p[name]) + p[f"{name}_bias"] for name in ("query", "key", "value"))
        mixed, attend_back = attend(q, k, v)
        x = x + np.einsum("the,hed->td", mixed, p["out"]) + p["out_bias"]
        h2, norm2_back = layer_norm(x, p["mlp_norm/scale"], p["mlp_norm/bias"])
        up = h2 @ p["up"] + p["up_bias"]
        active, slope = gelu(up)
        x = x + active @ p["down"].T + p["down_bias"]
        backwards.append((layer, p, h, norm_back, mixed, attend_back, h2, norm2_back, active, slope))
    final, final_back = layer_norm(x, params["final_norm/scale"], params["final_norm/bias"])
    logits = final @ params["embedding"].T
    log_p = logits - logits.max(-1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(-1, keepdims=True))
    loss = -log_p[np.arange(length), targets].sum()

    d_logits = np.exp(log_p)
    d_logits[np.arange(length), targets] -= 1
    grads["embedding"] += d_logits.T @ final
    dx, grads["final_norm/scale"], grads["final_norm/bias"] = final_back(d_logits @ params["embedding"])
    for layer, p, h, norm_back, mixed, attend_back, h2, norm2_back, active, slope in reversed(backwards):
        g = {}
        g["down"], g["down_bias"] = dx.T @ active, dx.sum(0)
        d_up = (dx @ p["down"]) * slope
        g["up"], g["up_bias"] = h2.T @ d_up, d_up.sum(0)
        d_norm, g["mlp_norm/scale"], g["mlp_norm/bias"] = norm2_back(d_up @ p["up"].T)
        dx = dx + d_norm
        g["out"], g["out_bias"] = np.einsum("the,td->hed", mixed, dx), dx.sum(0)
        d_heads = attend_back(np.einsum("td,hed->the", dx, p["out"]))
        d_h = 0
        for name, d in zip(("query", "key", "value"), d_heads, strict=True):
            g[name], g[f"{name}_bias"] = np.einsum("td,the->dhe", h, d), d.sum(0)
            d_h = d_h + np.einsum("the,dhe->td", d, p[name])
        d_norm, g["attention_norm/scale"], g["attention_norm/bias"] = norm_back(d_h)
        dx = dx + d_norm
        for name, value in g.items():
            grads[f"blocks/{layer}/{name}"] += value
    grads["position"][:length] += dx
    np.add.at(grads["embedding"], inputs, dx)
    return loss, grads


BLOCK = [name.removeprefix("blocks/0/") for name in init(CONFIG, 0) if name.startswith("blocks/0/")]


def batch_loss(params, token_ids, segment_ids):
    """Sum over the documents of a batch, its gradient, and the number of predictions."""
    total, count = 0.0, 0
    grads = {name: np.zeros_like(value) for name, value in params.items()}
    for ids, segments in zip(token_ids, segment_ids, strict=True):
        for segment in range(1, segments.max() + 1):
            document = ids[segments == segment]
            if len(document) < 2:
                continue
            loss, of_document = document_loss(params, document)
            total, count = total + loss, count + len(document) - 1
            grads = {name: value + of_document[name] for name, value in grads.items()}
    return total, grads, count


def train_in_numpy(params, batches):
    """AdamW from its paper, bias-corrected, decay decoupled and on block matrices alone; PyTorch's epsilon."""
    first = {name: np.zeros_like(value) for name, value in params.items()}
    second = {name: np.zeros_like(value) for name, value in params.items()}
    losses = []
    for step, (token_ids, segment_ids) in enumerate(batches, start=1):
        total, grads, count = batch_loss(params, token_ids, segment_ids)
        losses.append(total / count)
        grads = {name: value / count for name, value in grads.items()}
        norm = math.sqrt(sum((value**2).sum() for value in grads.values()))
        progress = (step - 3) / 7
        rate = 1e-2 * (step / 3 if step < 3 else 0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi * progress)))
        for name, gradient in grads.items():
            gradient = gradient * min(1.0, 0.5 / norm)
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.95 * second[name] + 0.05 * gradient**2
            if name.split("/")[-1] in ("query", "key", "value", "out", "up", "down"):
                params[name] = params[name] * (1 - rate * 0.3)
            corrected = np.sqrt(second[name] / (1 - 0.95**step)) + 1e-8
            params[name] = params[name] - rate * first[name] / (1 - 0.9**step) / corrected
    return params, losses


def batches_of(count):
    """Rows of a few documents each, of 3 to 7 tokens, and padding."""
    random = np.random.default_rng(5)
    made = []
    for _ in range(count):
        token_ids = random.integers(4, 300, (2, 9))
        segment_ids = np.array([[1, 1, 1, 1, 2, 2, 2, 2, 2], [1, 1, 1, 1, 1, 1, 1, 0, 0]])
        made.append((np.where(segment_ids == 0, 0, token_ids), segment_ids))
    return made


def test_the_numpy_gradient_is_that_of_finite_differences():
    params = {name: value.astype("f8") for name, value in noisy(init(CONFIG, 1)).items()}
    tokens = np.random.default_rng(2).integers(4, 300, 7)
    _, grads = document_loss(params, tokens)
    random = np.random.default_rng(3)
    for name, value in params.items():
        direction = random.normal(size=value.shape)
        values = []
        for sign in (1, -1):
            moved = {**params, name: value + sign * 1e-5 * direction}
            values.append(document_loss(moved, tokens)[0])
        slope = (values[0] - values[1]) / 2e-5
        assert slope == pytest.approx((grads[name] * direction).sum(), rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize("way", ["graph", "fused", "xla"])
def test_ten_steps_give_the_weights_of_the_reference(way):
    initial = noisy(init(CONFIG, 1))
    batches = batches_of(10)
    expected, losses = train_in_numpy({name: value.astype("f8") for name, value in initial.items()}, batches)

    train = TrainConfig(**SETTINGS, compile=way)
    state = TrainState(CONFIG, train)
    for name, value in initial.items():
        state.params[name].assign(value)
    step = make_train_step(CONFIG, train, state)
    for (token_ids, segment_ids), loss in zip(batches, losses, strict=True):
        result = step(tf.constant(token_ids, tf.int32), tf.constant(segment_ids, tf.int32))
        assert float(result.loss) == pytest.approx(loss, abs=2e-5)
    for name, value in expected.items():
        # A key's bias adds the same to all of a query's scores, so its gradient is 0 but for rounding, which Adam
        # blows up to full steps: these alone are nobody's.
        if not name.endswith("key_bias"):
            np.testing.assert_allclose(state.params[name], value, atol=1e-5, err_msg=name)
