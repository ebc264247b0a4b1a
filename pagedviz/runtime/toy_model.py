"""A small transformer with random weights, so that there are real queries, keys and values to cache.

x = embed(token); per layer: x += attention(norm(x)) Wo, x += gelu(norm(x) W1) W2; logits = norm(x) head.
From the second layer on, a token's K and V depend on every token before it, as in a real model.
"""

import hashlib
import math

import torch
from torch import Tensor

from pagedviz.engine.events import Token
from pagedviz.scenario import CacheConfig

# What the model can say. It can read any token.
VOCABULARY = (
    "the a of and to in that it is was for on with as his her they be at one have this from by hot but what some we can"
    " out other were all there when up use your how said an each she which do their time if will way about many then"
    " them write would like so these long make thing see him two has look more day could go come did number sound no"
    " most people my over know water than call first who may down side been now find"
).split()
ROTARY_BASE = 10_000.0


class ToyModel:
    """Deterministic in `seed`. Every method takes one row, so a batch cannot change a bit of it."""

    def __init__(self, cache: CacheConfig, seed: int, device: torch.device) -> None:
        self.seed = seed
        self.device = device
        self.num_heads, self.num_kv_heads, self.head_dim = cache.num_heads, cache.num_kv_heads, cache.head_dim
        hidden = self.hidden = cache.num_heads * cache.head_dim
        generator = torch.Generator().manual_seed(seed)

        def weight(rows: int, columns: int) -> Tensor:
            return (torch.randn(rows, columns, generator=generator) / math.sqrt(rows)).to(device)

        kv_width = cache.num_kv_heads * cache.head_dim
        self.layers = [
            {
                "q": weight(hidden, hidden) * 1.5,  # sharper than 1, so that the weights over blocks are worth seeing
                "k": weight(hidden, kv_width) * 1.5,
                "v": weight(hidden, kv_width),
                "out": weight(hidden, hidden),
                "up": weight(hidden, 2 * hidden),
                "down": weight(2 * hidden, hidden),
            }
            for _ in range(cache.num_layers)
        ]
        self.head = weight(hidden, len(VOCABULARY))
        self.frequencies = ROTARY_BASE ** (-torch.arange(0, cache.head_dim, 2, device=device) / cache.head_dim)

    def embed(self, token: Token) -> Tensor:
        """Any token's vector, [hidden], drawn from a hash of the seed and the token: 7 and "7" differ."""
        digest = hashlib.sha256(f"{self.seed}:{token!r}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7]))
        return torch.randn(self.hidden, generator=generator).to(self.device)

    def qkv(self, layer: int, x: Tensor, position: int) -> tuple[Tensor, Tensor, Tensor]:
        """Project one row: q [num_heads, head_dim], k, v [num_kv_heads, head_dim]; q, k turned to `position`."""
        weights, row = self.layers[layer], _norm(x)
        q = (row @ weights["q"]).view(self.num_heads, self.head_dim)
        k = (row @ weights["k"]).view(self.num_kv_heads, self.head_dim)
        v = (row @ weights["v"]).view(self.num_kv_heads, self.head_dim)
        return self._turn(q, position), self._turn(k, position), v

    def after_attention(self, layer: int, x: Tensor, attention: Tensor) -> Tensor:
        """Finish a layer for one row: x [hidden], attention [num_heads, head_dim] -> [hidden]."""
        weights = self.layers[layer]
        x = x + attention.reshape(-1) @ weights["out"]
        return x + torch.nn.functional.gelu(_norm(x) @ weights["up"]) @ weights["down"]

    def next_token(self, x: Tensor) -> str:
        """The greedy choice after the row whose last hidden state is x [hidden]."""
        return VOCABULARY[int((_norm(x) @ self.head).argmax())]

    def _turn(self, heads: Tensor, position: int) -> Tensor:
        """Rotary positions: turn each pair (2i, 2i + 1) of a head by position * frequency_i."""
        angle = position * self.frequencies
        even, odd = heads[:, 0::2], heads[:, 1::2]
        turned = torch.stack((even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()), dim=-1)
        return turned.flatten(-2)


def _norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean() + 1e-6)
