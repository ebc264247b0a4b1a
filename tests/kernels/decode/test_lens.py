"""The lens shows what the decode kernel did: the block each turn loaded, masked lanes, and m, l and acc after it."""

import math
import sys

import pytest
import torch

import kernels
from kernels import launch, reference
from kernels.reference.lens import Lens
from tests.kernel_cases import DTYPES, INF, NAN, TOLERANCE, Shape, assert_near, make_batch, on_gpu, quantize

LOG2E = math.log2(math.e)


def look(batch, **options):
    return kernels.paged_decode_lens(
        batch.q, batch.k_cache, batch.v_cache, batch.block_tables, batch.seq_lens, **options
    )


def near(got, expected, dtype):
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(got.double(), expected.double(), atol=tolerance, rtol=tolerance)


def check(batch, *, num_splits=1, scale=None, window=None, softcap=None, k_scale=None, v_scale=None):
    """Look, and compare each turn with float64 sums over all tokens of the split so far: no running anything."""
    lens = look(
        batch, num_splits=num_splits, scale=scale, window=window, softcap=softcap, k_scale=k_scale, v_scale=v_scale
    )
    num_seqs, num_heads, head_dim = batch.q.shape
    _, block_size, kv_heads, _ = batch.k_cache.shape
    dtype = batch.q.dtype
    seen = torch.zeros(lens.block.shape, dtype=torch.bool, device=lens.block.device)
    for seq in range(num_seqs):
        k, v = batch.own(batch.k_cache, seq, k_scale), batch.own(batch.v_cache, seq, v_scale)
        k, v = (x.repeat_interleave(num_heads // kv_heads, dim=1) for x in (k, v))
        head_scale = torch.ones(kv_heads, device=k.device, dtype=torch.float64)
        if v_scale is not None and v_scale.ndim == 1:
            head_scale = v_scale.double()
        head_scale = head_scale.repeat_interleave(num_heads // kv_heads)[:, None]
        score = torch.einsum("hd,thd->ht", batch.q[seq].double(), k) * (scale or head_dim**-0.5)
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        score *= LOG2E
        seq_len = len(k)
        first_seen = max(0, seq_len - window) if window else 0
        blocks = list(range(first_seen // block_size, -(-seq_len // block_size)))
        share = -(-len(blocks) // num_splits)
        for split in range(num_splits):
            mine = blocks[split * share : (split + 1) * share]
            for turn, logical_block in enumerate(mine):
                at = (seq, slice(None), split, turn)
                seen[at] = True
                assert set(lens.block[at].tolist()) == {int(batch.block_tables[seq, logical_block])}

                slots = [logical_block * block_size + i for i in range(block_size)]
                position = [t if first_seen <= t < seq_len else -1 for t in slots]
                position += [-1] * (lens.position.shape[-1] - block_size)
                assert lens.position[at].tolist() == [position] * kv_heads
                masked = torch.tensor(position, device=k.device) < 0
                assert (lens.score[at][:, masked] == -INF).all()
                near(lens.score[at][:, ~masked], score[:, [t for t in position if t >= 0]], dtype)

                so_far = slice(max(first_seen, mine[0] * block_size), min(seq_len, slots[-1] + 1))
                m = score[:, so_far].amax(dim=1)
                weight = torch.exp2(score[:, so_far] - m[:, None])
                near(lens.m[at], m, dtype)
                near(lens.l[at], weight.sum(dim=1), dtype)
                acc = torch.einsum("ht,thd->hd", weight, v[so_far])
                # The tolerance is of a mean: acc itself, and its rounding, grow with the tokens that it sums.
                near(lens.acc[at] * head_scale / lens.l[at][..., None], acc / weight.sum(dim=1)[:, None], dtype)
            if mine:
                near(lens.lse[seq, split], m + torch.log2(weight.sum(dim=1)), dtype)
                near(lens.partial[seq, split], acc / weight.sum(dim=1)[:, None], dtype)
            else:
                assert (lens.lse[seq, split] == -INF).all()
                assert lens.partial[seq, split].count_nonzero() == 0

    assert (lens.block[~seen] == -1).all()
    assert (lens.position[~seen] == -1).all()
    unseen = ~seen.repeat_interleave(num_heads // kv_heads, dim=1)
    assert all(buffer[unseen].isnan().all() for buffer in (lens.score, lens.m, lens.l, lens.acc))
    options = {"scale": scale, "window": window, "softcap": softcap, "k_scale": k_scale, "v_scale": v_scale}
    assert lens.out.dtype == dtype
    assert_near(lens.out, batch.decode(**options))
    assert_near(lens.out, batch.dense(**options))
    return lens


@pytest.mark.parametrize("num_splits", [1, 2, 7])
def test_every_turn_is_what_the_table_and_float64_say(num_splits):
    """Lengths that end a token before, at and after a block; more splits than a sequence has blocks; no tokens."""
    batch = make_batch(Shape(lens=(3, 4, 5, 0, 21), kv_heads=1), padding=2**31 - 1, spare_columns=1)
    check(batch, num_splits=num_splits)


@pytest.mark.parametrize(
    "shape",
    [
        *(Shape(lens=(6,), dtype=dtype) for dtype in DTYPES),
        Shape(lens=(1,), group=1, kv_heads=1, head_dim=1, block_size=1),
        Shape(lens=(7, 2), block_size=3, head_dim=17, group=1, kv_heads=3),
        Shape(lens=(6,), group=7, kv_heads=1, head_dim=80),
        Shape(lens=(40,), group=32, kv_heads=1, block_size=20),
    ],
    ids=str,
)
def test_heads_dims_and_block_sizes_that_are_no_power_of_two(shape):
    check(make_batch(shape), num_splits=2)


@pytest.mark.parametrize(("window", "num_splits"), [(1, 1), (4, 1), (6, 3), (30, 3)])
def test_blocks_below_the_window_are_not_loaded(window, num_splits):
    batch = make_batch(Shape(lens=(19, 5), kv_heads=1))
    for seq, seq_len in enumerate((19, 5)):
        for hidden in range(max(0, seq_len - window)):
            block = batch.block_tables[seq, hidden // 4]
            batch.k_cache[block, hidden % 4] = batch.v_cache[block, hidden % 4] = NAN
    lens = look(batch, window=window, num_splits=num_splits)
    below = batch.block_tables[0, : max(0, 19 - window) // 4].tolist()
    assert not set(below) & set(lens.block[0].flatten().tolist())
    assert lens.out.isfinite().all()


@pytest.mark.parametrize("window", [1, 4, 6])
def test_a_window_masks_the_part_of_a_block_that_it_hides(window):
    check(make_batch(Shape(lens=(19, 5), kv_heads=1)), num_splits=2, window=window)


def test_scores_are_those_that_softcap_bent_and_the_callers_scale():
    check(make_batch(Shape(lens=(9,), kv_heads=1)), softcap=0.7, scale=1.3)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("per", ["head", "slot"])
def test_scores_and_sums_are_of_the_dequantized_numbers(dtype, per):
    batch = make_batch(Shape(lens=(9,)))
    scales = quantize(batch, dtype, per)
    check(batch, num_splits=2, **scales)


@pytest.mark.parametrize("poison", [(NAN, NAN), (INF, -INF)])
def test_what_lies_in_the_slots_of_others_reaches_nothing(poison):
    lens = check(make_batch(Shape(lens=(5, 2)), poison=poison), num_splits=2)
    assert not any(buffer.isinf().any() for buffer in (lens.m, lens.l, lens.acc))


@pytest.mark.skipif(not launch.USES_TRITON, reason="needs Triton")
def test_nothing_is_written_outside_the_buffers(monkeypatch):
    """Each buffer lies between two fences, and they stand afterwards."""
    module = sys.modules["kernels.decode.lens"]
    unwritten, fences = module.unwritten, []

    def fenced(*args):
        inside = []
        for buffer in unwritten(*args):
            memory = torch.full((buffer.numel() + 256,), -77, dtype=buffer.dtype, device=buffer.device)
            inside.append(memory[128:-128].view(buffer.shape).copy_(buffer))
            fences.extend((memory[:128], memory[-128:]))
        return Lens(*inside)

    monkeypatch.setattr(module, "unwritten", fenced)
    check(make_batch(Shape(lens=(9, 14), group=3, head_dim=5, block_size=3)), num_splits=3)
    assert len(fences) == 18
    assert all((fence == -77).all() for fence in fences)


@pytest.mark.parametrize("options", [{}, {"num_splits": 2, "window": 5}, {"softcap": 2.0, "scale": 0.5}])
def test_kernel_and_reference_show_the_same(options):
    batch = make_batch(Shape(lens=(5, 0, 12), head_dim=5, block_size=3))
    arguments = batch.q, batch.k_cache, batch.v_cache, batch.block_tables, batch.seq_lens
    ours, theirs = look(batch, **options), reference.paged_decode_lens(*arguments, **options)
    for name in ours._fields:
        got, expected = getattr(ours, name), getattr(theirs, name)
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5, equal_nan=True, msg=name)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("per", ["head", "slot"])
def test_the_reference_dequantizes_like_the_kernel(monkeypatch, dtype, per):
    batch = make_batch(Shape(lens=(9,), kv_heads=1))
    scales = quantize(batch, dtype, per)
    monkeypatch.setattr(kernels, "paged_decode_lens", reference.paged_decode_lens)
    check(batch, num_splits=2, **scales)


def test_no_sequences_and_no_blocks():
    assert look(make_batch(Shape(lens=()))).out.shape == (0, 4, 8)
    lens = check(make_batch(Shape(lens=(0, 0))), num_splits=2)
    assert lens.block.shape == (2, 2, 2, 0)


def test_it_refuses_what_decode_refuses_and_other_numbers_of_splits():
    batch = make_batch(Shape(lens=(5,)))
    for num_splits in (0, 129):
        with pytest.raises(ValueError, match=f"paged_decode_lens: num_splits is {num_splits}; it must be 1 to 128"):
            look(batch, num_splits=num_splits)
    with pytest.raises(ValueError, match="paged_decode_lens: window is 0"):
        look(batch, window=0)
    batch.q = batch.q[:, :3]
    with pytest.raises(ValueError, match="paged_decode_lens: q has 3 heads and the cache 2 KV heads"):
        look(batch)


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("num_splits", [1, 4])
@pytest.mark.parametrize(
    ("lens", "kv_heads", "group", "head_dim", "block_size"),
    [
        ((1000, 0, 17), 8, 4, 128, 16),
        ((300, 129), 2, 5, 80, 128),
        ((65, 64, 63), 1, 32, 64, 8),
        ((70,), 1, 7, 256, 20),
        ((700,), 2, 1, 128, 256),
    ],
)
def test_compiled_turns_are_what_the_table_and_float64_say(
    dtype, num_splits, lens, kv_heads, group, head_dim, block_size
):
    batch = make_batch(Shape(lens, kv_heads, group, head_dim, block_size, dtype), padding=2**31 - 1)
    check(batch, num_splits=num_splits)
    check(batch, num_splits=num_splits, window=40, softcap=20.0)
