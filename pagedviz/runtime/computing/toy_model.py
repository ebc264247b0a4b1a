"""A small transformer with random weights, so that there are real queries, keys and values to cache.

x = embed(token); per layer: x += attention(norm(x)) Wo, x += gelu(norm(x) W1) W2; logits = norm(x) head.
From the second layer on, a token's K and V depend on every token before it, as in a real model. The weights and the
embeddings are those of `pagedviz/model/dense_model.py`, so a plan knows the model's words before a kernel runs.
"""

import torch
from torch import Tensor

from pagedviz.engine.log.events.base import Token
from pagedviz.model import dense_model
from pagedviz.scenario.settings import CacheConfig


class ToyModel:
    """Deterministic in `seed`. Every method takes one row, so the other rows of a batch cannot change a bit of it."""

    def __init__(self, cache: CacheConfig, seed: int, device: torch.device) -> None:
        self.cache, self.seed, self.device = cache, seed, device
        self.num_heads, self.num_kv_heads, self.head_dim = cache.num_heads, cache.num_kv_heads, cache.head_dim
        drawn = dense_model.weights(cache, seed)
        self.layers = [{name: self._tensor(weight) for name, weight in layer.items()} for layer in drawn.layers]
        self.head = self._tensor(drawn.head)
        self.windows = dense_model.windows(cache)
        exponents = -torch.arange(0, cache.head_dim, 2, device=device) / cache.head_dim
        self.frequencies = dense_model.ROTARY_BASE**exponents

    def embed(self, token: Token) -> Tensor:
        """Any token's vector, [hidden]."""
        return self._tensor(dense_model.embedding(self.cache, self.seed, token))

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
        return x + torch.nn.functional.gelu(_norm(x) @ weights["up"], approximate="tanh") @ weights["down"]

    def logits(self, x: Tensor) -> dense_model.Array:
        """Scores of every word as the next one, from a row's last hidden state x [hidden]; on the CPU: [vocabulary]."""
        scores: dense_model.Array = (_norm(x) @ self.head).cpu().numpy()
        return scores

    def _tensor(self, numbers: dense_model.Array) -> Tensor:
        return torch.from_numpy(numbers).to(self.device)

    def _turn(self, heads: Tensor, position: int) -> Tensor:
        """Rotary positions: turn each pair (2i, 2i + 1) of a head by position * frequency_i."""
        angle = position * self.frequencies
        even, odd = heads[:, 0::2], heads[:, 1::2]
        turned = torch.stack((even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()), dim=-1)
        return turned.flatten(-2)


def _norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean() + 1e-6)
