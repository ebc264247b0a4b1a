"""The toy model once more, as its docstring says: in torch, all tokens at once, no cache and no blocks."""

import math

import torch

from pagedviz.model import dense_model
from pagedviz.model.vocabulary import VOCABULARY


def scores_of(word):
    """Scores with `word` as their greedy choice, far above the next best."""
    scores = torch.zeros(len(VOCABULARY))
    scores[VOCABULARY.index(word)] = 1
    return scores.numpy()


def dense(cache, seed, tokens):
    """Float64: K and V [num_layers, seq_len, num_kv_heads, head_dim], and the logits after each token.

    Layer l belongs to group l % G and sees the newest tokens that its group's window shows, or all.
    """
    n, group = len(tokens), cache.num_heads // cache.num_kv_heads
    groups = cache.groups or (cache.window,)

    def norm(x):
        return x / (x.pow(2).mean(dim=-1, keepdim=True) + 1e-6).sqrt()

    def rotate(heads):
        """Rotary positions as complex numbers: pair i of a head turns by position / 10000^(2i / head_dim)."""
        pairs = torch.view_as_complex(heads.reshape(n, -1, cache.head_dim // 2, 2).contiguous())
        speed = 10_000.0 ** (-2 * torch.arange(cache.head_dim // 2, dtype=torch.float64) / cache.head_dim)
        turn = torch.polar(torch.ones(n, cache.head_dim // 2, dtype=torch.float64), torch.arange(n)[:, None] * speed)
        return torch.view_as_real(pairs * turn[:, None]).flatten(-2)

    weights = dense_model.weights(cache, seed)
    x = torch.stack([torch.from_numpy(dense_model.embedding(cache, seed, token)).double() for token in tokens])
    keys, values = [], []
    for index, layer in enumerate(weights.layers):
        w = {name: torch.from_numpy(weight).double() for name, weight in layer.items()}
        q, k, v = (
            (norm(x) @ w[name]).view(n, heads, cache.head_dim)
            for name, heads in (("q", cache.num_heads), ("k", cache.num_kv_heads), ("v", cache.num_kv_heads))
        )
        q, k = rotate(q), rotate(k)
        keys.append(k)
        values.append(v)
        window = groups[index % len(groups)]
        attention = torch.zeros(n, cache.num_heads, cache.head_dim, dtype=torch.float64)
        for i in range(n):
            seen = slice(max(0, i + 1 - window) if window else 0, i + 1)
            for head in range(cache.num_heads):
                scores = k[seen, head // group] @ q[i, head] / math.sqrt(cache.head_dim)
                attention[i, head] = scores.softmax(0) @ v[seen, head // group]
        x = x + attention.flatten(1) @ w["out"]
        x = x + torch.nn.functional.gelu(norm(x) @ w["up"], approximate="tanh") @ w["down"]
    return torch.stack(keys), torch.stack(values), norm(x) @ torch.from_numpy(weights.head).double()
