"""The dense toy model: its scores behind plain tokens, in float64 and without a cache of blocks.

With it a run can be planned before the kernels compute it. `runtime/computing/toy_model.py` takes the same weights
into torch.
"""

import functools
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pagedviz.engine.log.events.base import Token
from pagedviz.model.vocabulary import VOCABULARY
from pagedviz.scenario.settings import CacheConfig

Array = NDArray[Any]

ROTARY_BASE = 10_000.0
PIECE = 128  # tokens that are computed at once; their scores over all earlier tokens take memory
KEPT_BYTES = 32 * 2**20  # of one model; if it has more, it keeps only the tokens of the last call


class Weights(NamedTuple):
    """Of each layer "q", "k", "v", "out", "up" and "down", and the head: float32 [rows, columns]."""

    layers: tuple[dict[str, Array], ...]
    head: Array


def weights(cache: CacheConfig, seed: int) -> Weights:
    """Draw the toy model's weights; the same for the same shape and seed in every process."""
    random = np.random.default_rng(seed)
    hidden, kv_width = cache.num_heads * cache.head_dim, cache.num_kv_heads * cache.head_dim

    def weight(rows: int, columns: int, scale: float = 1.0) -> Array:
        drawn: Array = random.standard_normal((rows, columns)) * scale / np.sqrt(rows)
        return drawn.astype(np.float32)

    layers = tuple(
        {
            "q": weight(hidden, hidden, 1.5),  # more than 1, so that attention differs clearly from token to token
            "k": weight(hidden, kv_width, 1.5),
            "v": weight(hidden, kv_width),
            "out": weight(hidden, hidden),
            "up": weight(hidden, 2 * hidden),
            "down": weight(2 * hidden, hidden),
        }
        for _ in range(cache.num_layers)
    )
    return Weights(layers, weight(hidden, len(VOCABULARY)))


@functools.lru_cache(maxsize=4)
def double_weights(cache: CacheConfig, seed: int) -> Weights:
    """The same numbers in float64, for numpy."""
    drawn = weights(cache, seed)
    layers = tuple({name: w.astype(np.float64) for name, w in layer.items()} for layer in drawn.layers)
    return Weights(layers, drawn.head.astype(np.float64))


def embedding(cache: CacheConfig, seed: int, token: Token) -> Array:
    """The vector of any token, float32 [hidden], drawn from a hash of the seed and the token: 7 and "7" differ."""
    digest = hashlib.sha256(f"{seed}:{token!r}".encode()).digest()
    random = np.random.default_rng(int.from_bytes(digest[:16]))
    return random.standard_normal(cache.num_heads * cache.head_dim).astype(np.float32)


def windows(cache: CacheConfig) -> tuple[int | None, ...]:
    """For each layer, how many of the newest tokens it sees; None: all of them."""
    return tuple(cache.windows[layer % len(cache.windows)] for layer in range(cache.num_layers))


class _Node:
    """One token behind those before it: its `k` and `v` [num_layers, num_kv_heads, head_dim], its last hidden state."""

    __slots__ = ("after", "k", "v", "x")

    def __init__(self, k: Array, v: Array, x: Array) -> None:
        self.k, self.v, self.x = k, v, x
        self.after: dict[Token, _Node] = {}

    @property
    def num_bytes(self) -> int:
        return self.k.nbytes + self.v.nbytes + self.x.nbytes + 1024  # the last is about what Python itself needs


class DenseModel:
    """The toy model over plain tokens. It keeps what it computed as a tree of prefixes, so one more token costs one
    row."""

    def __init__(self, cache: CacheConfig, seed: int) -> None:
        self.cache, self.seed = cache, seed
        self._weights = double_weights(cache, seed)
        self._windows = windows(cache)
        self._frequencies = ROTARY_BASE ** (-np.arange(0, cache.head_dim, 2) / cache.head_dim)
        self._first: dict[Token, _Node] = {}
        self._kept_bytes = 0

    def logits(self, tokens: Sequence[Token]) -> Array:
        """The scores of every word after the last of `tokens`, at least one: float64 [vocabulary]."""
        scores: Array = norm(self._path(tokens)[-1].x) @ self._weights.head
        return scores

    def _path(self, tokens: Sequence[Token]) -> list[_Node]:
        """The nodes of all tokens. Missing ones are computed."""
        path: list[_Node] = []
        after = self._first
        for token in tokens:
            if token not in after:
                break
            path.append(after[token])
            after = path[-1].after
        while len(path) < len(tokens):
            piece = tokens[len(path) : len(path) + PIECE]
            for token, node in zip(piece, self._compute(path, piece), strict=True):
                after[token], after = node, node.after
                path.append(node)
                self._kept_bytes += node.num_bytes
        if self._kept_bytes > KEPT_BYTES:
            self._keep_only(path, tokens)
        return path

    def _keep_only(self, path: list[_Node], tokens: Sequence[Token]) -> None:
        self._first = {tokens[0]: path[0]}
        for node, token, following in zip(path, tokens[1:], path[1:], strict=False):
            node.after = {token: following}
        path[-1].after = {}
        self._kept_bytes = sum(node.num_bytes for node in path)

    def _compute(self, path: list[_Node], tokens: Sequence[Token]) -> list[_Node]:
        """Compute the tokens behind those of `path` through all layers, all at once."""
        cache, positions = self.cache, np.arange(len(path), len(path) + len(tokens))
        x = np.stack([embedding(cache, self.seed, token) for token in tokens]).astype(np.float64)
        new_k, new_v = [], []
        for layer, (w, window) in enumerate(zip(self._weights.layers, self._windows, strict=True)):
            row = norm(x)
            q, k, v = (self._heads(row @ w[name]) for name in ("q", "k", "v"))
            q, k = self._turn(q, positions), self._turn(k, positions)
            new_k.append(k)
            new_v.append(v)
            past_k = np.stack([node.k[layer] for node in path] + list(k))
            past_v = np.stack([node.v[layer] for node in path] + list(v))
            x = x + self._attend(q, past_k, past_v, positions, window) @ w["out"]
            x = x + gelu(norm(x) @ w["up"]) @ w["down"]
        return [_Node(*row) for row in zip(np.stack(new_k, axis=1), np.stack(new_v, axis=1), x, strict=True)]

    def _heads(self, row: Array) -> Array:
        return row.reshape(len(row), -1, self.cache.head_dim)

    def _turn(self, heads: Array, positions: Array) -> Array:
        """Rotary positions: turn each pair (2i, 2i + 1) of a head by position * frequency_i."""
        angle = positions[:, None, None] * self._frequencies
        even, odd = heads[..., 0::2], heads[..., 1::2]
        pairs = (even * np.cos(angle) - odd * np.sin(angle), even * np.sin(angle) + odd * np.cos(angle))
        return np.stack(pairs, axis=-1).reshape(heads.shape)

    def _attend(self, q: Array, k: Array, v: Array, positions: Array, window: int | None) -> Array:
        """Causal: q [n, num_heads, head_dim] over k and v [seq_len, num_kv_heads, head_dim] -> [n, hidden]."""
        group = self.cache.num_heads // self.cache.num_kv_heads
        k, v = (np.repeat(heads, group, axis=1).swapaxes(0, 1) for heads in (k, v))
        scores = q.swapaxes(0, 1) @ k.swapaxes(1, 2) / np.sqrt(self.cache.head_dim)
        behind = positions[:, None] - np.arange(k.shape[1])
        seen = behind >= 0 if window is None else (behind >= 0) & (behind < window)
        scores = np.where(seen, scores, -np.inf)
        share = np.exp(scores - scores.max(axis=-1, keepdims=True))
        share /= share.sum(axis=-1, keepdims=True)
        attended: Array = (share @ v).swapaxes(0, 1)
        return attended.reshape(len(q), -1)


@functools.lru_cache(maxsize=4)
def dense_model(cache: CacheConfig, seed: int) -> DenseModel:
    """The model of a cache and a seed. Runs with the same beginning share what it has computed."""
    return DenseModel(cache, seed)


def norm(x: Array) -> Array:
    """Scale each row to a mean square of 1."""
    scaled: Array = x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + 1e-6)
    return scaled


def gelu(x: Array) -> Array:
    """GELU in its tanh form, which needs only numpy."""
    bent: Array = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return bent
