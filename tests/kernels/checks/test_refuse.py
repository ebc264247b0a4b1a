"""A call that cannot be right is refused with a ValueError that names the call, the value and what would be right."""

import inspect

import pytest
import torch

import kernels
from kernels import launch, reference
from tests.kernel_cases import Shape, ids, make_batch, randn
from tests.kernels.prefill.prefill_cases import make_prefill

on_cpu_only = pytest.mark.skipif(launch.COMPILED, reason="values in GPU tensors are trusted: reading them would wait")


def refused(message, **changes):
    """Decode a good batch with one thing changed, by the kernel and by the reference."""
    for decode in (kernels.paged_decode, reference.paged_decode):
        batch = make_batch(Shape(lens=(5, 3)))
        arguments = {name: getattr(batch, name) for name in ("q", "k_cache", "v_cache", "block_tables", "seq_lens")}
        arguments |= {name: change(arguments.get(name)) for name, change in changes.items()}
        with pytest.raises(ValueError, match=f"paged_decode: {message}"):
            decode(**arguments)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (r"q is \[2, 4, 7\]; it must be \[num_seqs, num_heads, 8\]", {"q": lambda q: q[..., :7]}),
        (r"q is \[4, 8\]", {"q": lambda q: q[0]}),
        (r"q has 3 heads and the cache 2 KV heads", {"q": lambda q: q[:, :3]}),
        (r"q has 0 heads", {"q": lambda q: q[:, :0]}),
        (r"q is torch.float16 and k_cache is torch.float32", {"q": lambda q: q.half()}),
        (r"v_cache is torch.bfloat16 and k_cache is torch.float32", {"v_cache": lambda v: v.bfloat16()}),
        (r"k_cache is torch.int32; it must be float32, float16 or bfloat16", {"k_cache": lambda k: k.int()}),
        (r"k_cache is torch.float64", {"k_cache": lambda k: k.double()}),
        (r"k_cache is \[6, 4, 16\]; it must be \[num_blocks, block_size", {"k_cache": lambda k: k.flatten(2)}),
        (r"v_cache is \[5, 4, 2, 8\] and k_cache is \[6, 4, 2, 8\]", {"v_cache": lambda v: v[1:]}),
        (r"block_tables is torch.float32; it must be int32 or int64", {"block_tables": lambda t: t.float()}),
        (
            r"block_tables is \[1, 2\]; it must be \[num_seqs, max_blocks\] = \[2, any\]",
            {"block_tables": lambda t: t[:1]},
        ),
        (r"seq_lens is \[1\]; it must be \[num_seqs\] = \[2\]", {"seq_lens": lambda n: n[:1]}),
        (r"seq_lens is torch.int16", {"seq_lens": lambda n: n.short()}),
        (r"tokens_per_tile is 0; it must be at least 1", {"tokens_per_tile": lambda _: 0}),
        (r"q is on meta and k_cache on", {"q": lambda q: q.to("meta")}),
        (r"seq_lens is on meta; it must be on", {"seq_lens": lambda n: n.to("meta")}),
    ],
)
def test_decode_refuses(message, changes):
    refused(message, **changes)


@on_cpu_only
@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (r"a sequence of 9 tokens does not fit its row of block_tables, 2 blocks of 4", {"seq_lens": lambda n: n + 4}),
        (r"block_tables names blocks \[.*\]; the cache has blocks 0 to 5", {"block_tables": lambda t: t + 6}),
        (r"block_tables names blocks \[-1\]", {"block_tables": lambda t: t * 0 - 1}),
    ],
)
def test_decode_refuses_values_that_lie_outside(message, changes):
    refused(message, **changes)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (r"window is 0; it must be at least 1", {"window": lambda _: 0}),
        (r"softcap is 0.0; it must be above 0", {"softcap": lambda _: 0.0}),
        (r"softcap is inf; it must be above 0 and finite", {"softcap": lambda _: float("inf")}),
        (r"softcap is nan; it must be above 0", {"softcap": lambda _: float("nan")}),
        (r"k_scale is float; it must be a float32 tensor", {"k_scale": lambda _: 0.5}),
        (r"v_scale is torch.float16; it must be a float32 tensor", {"v_scale": lambda _: randn(2).half()}),
        (r"k_scale is \[1\]; it must be \[num_kv_heads\] = \[2\] or .* = \[6, 4, 2\]", {"k_scale": lambda _: randn(1)}),
        (r"v_scale is \[5, 4, 2\]", {"v_scale": lambda _: randn(5, 4, 2)}),
        (r"v_scale is on meta; it must be on", {"v_scale": lambda _: randn(2).to("meta")}),
        (
            r"v_cache is torch.float32 and k_cache is torch.int8; they must be of one dtype",
            {"k_cache": lambda k: k.to(torch.int8)},
        ),
        (
            r"v_cache is torch.float8_e5m2 and k_cache is torch.float8_e4m3fn; they must be of one dtype",
            {"k_cache": lambda k: k.to(torch.float8_e4m3fn), "v_cache": lambda v: v.to(torch.float8_e5m2)},
        ),
        (
            r"k_scale is None; int8 caches need k_scale and v_scale",
            {"k_cache": lambda k: k.to(torch.int8), "v_cache": lambda v: v.to(torch.int8)},
        ),
        (
            r"q is torch.int8; it must be float32, float16 or bfloat16",
            {name: lambda x: x.to(torch.int8) for name in ("q", "k_cache", "v_cache")},
        ),
    ],
)
def test_decode_refuses_options(message, changes):
    refused(message, **changes)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (r"k is \[3, 2, 7\]; .* it must be \[num_tokens, 2, 8\]", {"k": lambda k: k[..., :7]}),
        (r"v is \[2, 2, 8\]", {"v": lambda v: v[:2]}),
        (r"k is torch.float16 and k_cache is torch.float32", {"k": lambda k: k.half()}),
        (r"slot_mapping is \[2\]; it must be \[num_tokens\] = \[3\]", {"slot_mapping": lambda s: s[:2]}),
        (r"slot_mapping is torch.float32", {"slot_mapping": lambda s: s.float()}),
        (r"v is on meta and k_cache on", {"v": lambda v: v.to("meta")}),
        pytest.param(
            r"slot 16 is outside the cache; 4 blocks of 4 have slots 0 to 15",
            {"slot_mapping": lambda s: s + 14},
            marks=on_cpu_only,
        ),
    ],
)
@pytest.mark.parametrize("store", [kernels.store_kv, reference.store_kv], ids=["kernel", "reference"])
def test_store_refuses_and_changes_nothing(store, message, changes):
    caches = {"k_cache": randn(4, 4, 2, 8), "v_cache": randn(4, 4, 2, 8)}
    before = caches["k_cache"].clone()
    arguments = {"k": randn(3, 2, 8), "v": randn(3, 2, 8), "slot_mapping": ids(0, 1, 2)}
    arguments |= {name: change(arguments[name]) for name, change in changes.items()}
    with pytest.raises(ValueError, match=f"store_kv: {message}"):
        store(**arguments, **caches)
    assert torch.equal(caches["k_cache"], before)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (r"k_scale is None; int8 caches need", {"k_scale": lambda _: None}),
        (r"v_scale is \[3\]; it must be \[num_kv_heads\] = \[2\] or", {"v_scale": lambda _: randn(3)}),
        (r"v_scale is torch.float16", {"v_scale": lambda s: s.half()}),
        (
            r"k is torch.int8; it must be float32, float16 or bfloat16",
            {name: lambda x: x.to(torch.int8) for name in ("k", "v")},
        ),
        (r"v is torch.float16 and k is torch.float32", {"v": lambda v: v.half()}),
        (r"v_cache is torch.int16 and k_cache is torch.int8", {"v_cache": lambda v: v.short()}),
        (r"k is on meta and k_cache on", {name: lambda x: x.to("meta") for name in ("k", "v")}),
        (
            r"k_scale or v_scale is given and k_cache is torch.float32; only 8 bits have scales",
            {name: lambda cache: cache.float() for name in ("k_cache", "v_cache")},
        ),
    ],
)
@pytest.mark.parametrize("store", [kernels.store_kv, reference.store_kv], ids=["kernel", "reference"])
def test_store_refuses_scales_that_do_not_fit(store, message, changes):
    arguments = {"k": randn(3, 2, 8), "v": randn(3, 2, 8), "slot_mapping": ids(0, 1, 2)}
    arguments |= {
        name: torch.ones(4, 4, 2, 8, dtype=torch.int8, device=kernels.device()) for name in ("k_cache", "v_cache")
    }
    arguments |= {"k_scale": randn(2), "v_scale": randn(4, 4, 2)}
    arguments |= {name: change(arguments[name]) for name, change in changes.items()}
    with pytest.raises(ValueError, match=f"store_kv: {message}"):
        store(**arguments)


def test_every_kernel_has_a_twin():
    assert set(kernels.__all__) - {"backend_name", "device"} == set(reference.__all__)


@pytest.mark.parametrize("name", reference.__all__)
def test_kernel_and_reference_have_one_signature(name):
    assert inspect.signature(getattr(kernels, name)) == inspect.signature(getattr(reference, name))
    assert getattr(kernels, name).__doc__


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (r"q is \[8, 4, 7\]; it must be \[num_tokens, num_heads, 8\]", {"q": lambda q: q[..., :7]}),
        (r"q has 3 heads and the cache 2 KV heads", {"q": lambda q: q[:, :3]}),
        (r"q is torch.float16 and k_cache is torch.float32", {"q": lambda q: q.half()}),
        (r"query_start_loc is torch.float32", {"query_start_loc": lambda s: s.float()}),
        (r"query_start_loc is \[2\]; it must be \[num_seqs \+ 1\] = \[3\]", {"query_start_loc": lambda s: s[:2]}),
        (r"query_start_loc is on meta; it must be on", {"query_start_loc": lambda s: s.to("meta")}),
        (r"block_tables is \[1, 2\]; it must be", {"block_tables": lambda t: t[:1]}),
        (r"seq_lens is \[\]; it must be \[num_seqs\]", {"seq_lens": lambda n: n[0]}),
        (r"tokens_per_tile is 0", {"tokens_per_tile": lambda _: 0}),
        (r"window is 0", {"window": lambda _: 0}),
        (r"softcap is inf", {"softcap": lambda _: float("inf")}),
        (r"k_scale is \[1\]", {"k_scale": lambda _: randn(1)}),
        *(
            pytest.param(rf"query_start_loc is {listed}; it must start at 0", {"query_start_loc": change}, marks=mark)
            for mark in (on_cpu_only,)
            for listed, change in [
                (r"\[1, 5, 8\]", lambda s: s + ids(1, 0, 0)),
                (r"\[0, 9, 8\]", lambda s: s + ids(0, 4, 0)),
                (r"\[0, 5, 9\]", lambda s: s + ids(0, 0, 1)),
            ]
        ),
    ],
)
@pytest.mark.parametrize("prefill", [kernels.paged_prefill, reference.paged_prefill], ids=["kernel", "twin"])
def test_prefill_refuses(prefill, message, changes):
    arguments = make_prefill(Shape(lens=(5, 3))).arguments()
    arguments |= {name: change(arguments.get(name)) for name, change in changes.items()}
    with pytest.raises(ValueError, match=f"paged_prefill: {message}"):
        prefill(**arguments)
