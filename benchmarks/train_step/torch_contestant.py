"""The same model in PyTorch: `torch-eager-float32`, `torch-compile-bfloat16`, ... Runs in PyTorch's environment.

As its users write it: scaled_dot_product_attention, fused AdamW, autocast for bfloat16.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
import turns
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, T, D] -> [B, T, D]."""
        batch, length, width = hidden.shape
        split = self.qkv(self.attention_norm(hidden)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.down(functional.gelu(self.up(self.mlp_norm(hidden)), approximate="tanh"))


class Model(nn.Module):
    """GPT-2's shape with a tied head."""

    def __init__(self, shape: dict[str, int]):
        super().__init__()
        width = shape["width"]
        self.embedding = nn.Embedding(shape["vocab_size"], width)
        self.position = nn.Embedding(shape["seq_len"], width)
        self.blocks = nn.ModuleList([Block(width, shape["num_heads"]) for _ in range(shape["num_layers"])])
        self.final_norm = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if name.endswith("weight") and parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """[B, T + 1] -> mean loss."""
        inputs, targets = token_ids[:, :-1], token_ids[:, 1:]
        hidden = self.embedding(inputs) + self.position.weight
        for block in self.blocks:
            hidden = block(hidden)
        logits = functional.linear(self.final_norm(hidden), self.embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def product(dtype: str) -> object:
    """A square matrix product of PyTorch's own."""
    left = torch.randn(turns.PEAK_SIZE, turns.PEAK_SIZE).to(getattr(torch, dtype))
    return lambda: left @ left


def main(name: str, shape: dict[str, int]) -> None:
    """Trains in turns."""
    _, way, precision = name.split("-")
    torch.manual_seed(0)
    model = Model(shape)
    decays = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decays, "weight_decay": turns.WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=turns.LEARNING_RATE,
        betas=turns.BETAS,
        eps=turns.EPSILON,
        fused=True,
    )
    loss_of = torch.compile(model) if way == "compile" else model
    token_ids = torch.from_numpy(turns.batch_of(shape)).long()

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = loss_of(token_ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), turns.CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss)

    turns.take_turns(turns.one_by_one(step), product)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
