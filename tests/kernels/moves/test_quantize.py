"""store_kv into 8-bit caches: the kernel rounds as torch does, writes the scales it is asked for, and nothing else."""

import pytest
import torch

import kernels
from kernels import reference
from kernels.checks.arguments import EIGHT_BITS
from kernels.moves import quantize
from kernels.reference.eight_bits import quantized
from tests.kernel_cases import DTYPES, INF, NAN, Batch, assert_near, assert_same_bits, ids, on_gpu, randn

BLOCKS, BLOCK_SIZE, HEADS, DIM = 4, 4, 2, 8


def fresh(dtype, head_dim=DIM, heads=HEADS, blocks=BLOCKS, block_size=BLOCK_SIZE):
    """A cache whose every byte is 0x55, so that a byte written or left is seen."""
    memory = torch.full((blocks, block_size, heads, head_dim), 0x55, dtype=torch.uint8, device=kernels.device())
    return memory.view(dtype)


def scales_for(per, heads=HEADS, blocks=BLOCKS, block_size=BLOCK_SIZE):
    """K's scale and V's: by head to be read, by slot to be written, one of each, or none."""
    by_head = [torch.linspace(0.01, 0.3, heads, device=kernels.device()) * (i + 1) for i in range(2)]
    by_slot = [torch.full((blocks, block_size, heads), NAN, device=kernels.device()) for _ in range(2)]
    kinds = {"head": by_head, "slot": by_slot, "both": [by_head[0], by_slot[1]], "none": [None, None]}
    return dict(zip(("k_scale", "v_scale"), kinds[per], strict=True))


def store_both_ways(k, v, dtype, per, slots, **shape):
    """Store with the kernel and with the reference; compare every byte of caches and scales; return the kernel's."""
    both = []
    for store in (kernels.store_kv, reference.store_kv):
        caches = fresh(dtype, **shape), fresh(dtype, **shape)
        scales = scales_for(per, **{name: shape[name] for name in shape if name != "head_dim"})
        store(k, v, *caches, slots, **scales)
        both.append((*caches, *scales.values()))
    for ours, theirs in zip(*both, strict=True):
        if ours is not None:
            assert_same_bits(ours, theirs)
    return both[0]


def awkward(dtype):
    """Every number of an 8-bit format, what is halfway to its neighbour, what is just beside both, and worse."""
    codes = torch.arange(256, dtype=torch.uint8).view(torch.int8 if dtype == torch.int8 else dtype).float()
    exact = codes[codes.isfinite()].sort().values
    halfway = (exact[:-1] + exact[1:]) / 2
    at = torch.cat([exact, halfway])
    worse = [0.0, -0.0, 1e-45, -1e-45, 1e-38, 126.5, 127.4, -127.5, -128.0, 448.0, 464.0, 480.0, 57344.0, 61440.0, 1e30]
    near = [at, torch.nextafter(at, torch.tensor(INF)), torch.nextafter(at, torch.tensor(-INF))]
    numbers = torch.cat([*near, torch.tensor([*worse, INF, -INF, NAN, -NAN])])
    return torch.nn.functional.pad(numbers, (0, -len(numbers) % DIM)).to(kernels.device())


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_every_number_is_rounded_to_nearest_even_and_saturates(dtype):
    numbers = awkward(dtype).view(-1, 1, DIM)
    slots = torch.arange(len(numbers), device=kernels.device())
    one = torch.ones(1, device=kernels.device())
    k_cache, v_cache = (fresh(dtype, heads=1, blocks=1, block_size=len(numbers)) for _ in range(2))
    kernels.store_kv(numbers, -numbers, k_cache, v_cache, slots, k_scale=one, v_scale=one)
    largest = {torch.int8: 127}.get(dtype) or torch.finfo(dtype).max
    limited = numbers.nan_to_num(nan=0.0 if dtype == torch.int8 else NAN).clamp(-largest, largest).cpu()
    for cache, wanted in ((k_cache, limited), (v_cache, -limited)):
        wanted = wanted.round().to(dtype) if dtype == torch.int8 else wanted.to(dtype)
        assert torch.equal(cache[0].cpu().float().nan_to_num(nan=1e9), wanted.float().nan_to_num(nan=1e9))
        if dtype != torch.int8:
            assert torch.equal(cache[0].cpu().float().signbit()[wanted == 0], wanted.float().signbit()[wanted == 0])


@pytest.mark.parametrize(
    ("dtype", "per"),
    [(dtype, per) for dtype in EIGHT_BITS for per in ("head", "slot", "both")]
    + [(dtype, "none") for dtype in EIGHT_BITS if dtype != torch.int8],
    ids=str,
)
def test_kernel_and_reference_store_the_same_bytes(dtype, per):
    k, v = randn(4, HEADS, DIM), randn(4, HEADS, DIM, seed=1) * 1e3
    store_both_ways(k, v, dtype, per, ids(9, -1, 0, 15))


@pytest.mark.parametrize("scale", [3.0, 41.0, 49.0, 0.7])
def test_numbers_are_divided_by_their_scale_not_multiplied_by_its_reciprocal(scale):
    """Halves of a scale: as quotients they are ties, which go to the even number; a product may lie just beside."""
    halves = (torch.arange(-126, 126, device=kernels.device()) + 0.5).view(-1, 1, 1)
    scales = {name: torch.full((1,), scale, device=kernels.device()) for name in ("k_scale", "v_scale")}
    k = (halves * scales["k_scale"]).expand(-1, 1, DIM)
    caches = [fresh(torch.int8, heads=1, blocks=1, block_size=len(k)) for _ in range(2)]
    kernels.store_kv(k, k, *caches, torch.arange(len(k), device=k.device), **scales)
    assert torch.equal(caches[0][0].cpu(), (k / scales["k_scale"]).round().to(torch.int8).cpu())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_new_tokens_may_be_of_any_float(dtype):
    k = randn(3, HEADS, DIM, dtype=dtype)
    store_both_ways(k, k.flip(0), torch.float8_e4m3fn, "slot", ids(3, 4, 12))


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_scale_of_a_slot_is_its_largest_number_over_the_largest_of_the_format(dtype):
    k = torch.zeros(2, HEADS, DIM, device=kernels.device())
    k[0, 0, 3], k[0, 1, 5], k[1, 0, 0] = -6.0, 3.0, 1.5
    k_cache, _, k_scale, _ = store_both_ways(k, k, dtype, "slot", ids(9, 2))
    largest = {torch.int8: 127}.get(dtype) or torch.finfo(dtype).max
    assert k_scale[2, 1].tolist() == (torch.tensor([6.0, 3.0]) / largest).tolist()
    # A head of zeros: scale 1, and zeros.
    assert k_scale[0, 2].tolist() == [(torch.tensor(1.5) / largest).item(), 1.0]
    assert k_cache[2, 1].float()[[0, 1], [3, 5]].tolist() == [-largest, largest]
    assert k_cache[0, 2, 1].float().tolist() == [0.0] * DIM
    assert int(k_scale.isfinite().sum()) == 4


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_is_no_number_makes_its_token_and_head_read_as_nan_and_no_other(dtype, bad):
    k = randn(2, HEADS, DIM)
    k[0, 1, 2] = bad
    k_cache, _, k_scale, _ = store_both_ways(k, k, dtype, "slot", ids(9, 2))
    read = k_cache.float() * k_scale[..., None]
    assert read[2, 1, 1].isnan().all()
    assert read[2, 1, 0].isfinite().all()
    assert read[0, 2].isfinite().all()


def test_numbers_too_small_to_have_a_scale_are_zeros():
    k = torch.full((1, HEADS, DIM), 1e-38, device=kernels.device())
    k_cache, _, k_scale, _ = store_both_ways(k, k, torch.int8, "slot", ids(5))
    assert k_scale[1, 1].tolist() == [1.0, 1.0]
    assert k_cache[1, 1].count_nonzero() == 0


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_slot_minus_one_writes_neither_numbers_nor_scales(dtype):
    # Views one block into larger memory, where a write to slot -1 would be seen.
    caches, scales = [fresh(dtype), fresh(dtype)], scales_for("slot")
    before = [x.clone() for x in (*caches, *scales.values())]
    k = randn(3, HEADS, DIM)
    inside = {name: scale[1:3] for name, scale in scales.items()}
    kernels.store_kv(k, k, caches[0][1:3], caches[1][1:3], ids(-1, -1, -1), **inside)
    for now, then in zip((*caches, *scales.values()), before, strict=True):
        assert_same_bits(now, then)


@pytest.mark.parametrize(("block_size", "heads", "head_dim"), [(1, 1, 1), (3, 5, 17), (16, 3, 80), (5, 1, 600)])
def test_any_block_size_head_count_and_head_dim(block_size, heads, head_dim):
    k, v = randn(2, heads, head_dim), randn(2, heads, head_dim, seed=1)
    for dtype in (torch.int8, torch.float8_e5m2):
        slots = ids(3 * block_size, block_size - 1)
        store_both_ways(k, v, dtype, "slot", slots, head_dim=head_dim, heads=heads, block_size=block_size)


def test_caches_scales_and_tokens_may_be_views():
    qkv = randn(3, 8, DIM)
    pool = torch.zeros(BLOCKS, 2, BLOCK_SIZE, HEADS, DIM, dtype=torch.int8, device=kernels.device())
    scale = torch.full((BLOCKS, HEADS, BLOCK_SIZE, 2), NAN, device=kernels.device())
    by_slot = {"k_scale": scale[..., 0].transpose(1, 2), "v_scale": scale[..., 1].transpose(1, 2)}
    k, v = qkv[:, 4:6], qkv[:, 6:8]
    slots = ids(2, 13, 8)
    kernels.store_kv(k, v, pool[:, 0], pool[:, 1], slots, **by_slot)
    for x, cache, by in ((k, pool[:, 0], by_slot["k_scale"]), (v, pool[:, 1], by_slot["v_scale"])):
        read = cache.float() * by[..., None]
        wanted = x.abs().amax(-1, keepdim=True) / 127 / 2 + 1e-6
        assert ((read[slots // BLOCK_SIZE, slots % BLOCK_SIZE] - x).abs() <= wanted).all()
    assert int(scale.isfinite().sum()) == 3 * HEADS * 2


@pytest.mark.parametrize("per", ["head", "slot"])
@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_decode_reads_what_was_stored(dtype, per):
    """Against dense attention over the numbers stored times their scales: the table's tolerance, as for floats."""
    lens, tables = (6, 0, 9), [[3, 7, 0], [0, 0, 0], [5, 1, 6]]
    shape = {"blocks": 8, "heads": HEADS}
    k, v = randn(15, HEADS, DIM), randn(15, HEADS, DIM, seed=1)
    slots = [tables[seq][t // BLOCK_SIZE] * BLOCK_SIZE + t % BLOCK_SIZE for seq, n in enumerate(lens) for t in range(n)]
    k_cache, v_cache, k_scale, v_scale = store_both_ways(k, v, dtype, per, ids(*slots), **shape)
    q = randn(3, 2 * HEADS, DIM)
    tables, lens = torch.tensor(tables, device=q.device), torch.tensor(lens, device=q.device)
    batch = Batch(q, k_cache, v_cache, tables, lens, q)
    batch.check_options(k_scale=k_scale, v_scale=v_scale)
    # And near to what was given to be stored: half a step of the format away at most, number by number.
    step = {torch.int8: 1 / 254, torch.float8_e4m3fn: 1 / 16, torch.float8_e5m2: 1 / 8}[dtype]
    if per == "slot":
        given = k[: lens[0]]
        size = given.abs().amax(-1, keepdim=True) if dtype == torch.int8 else given.abs()
        lowest = given.abs().amax(-1, keepdim=True) * 1e-3
        assert ((batch.own(k_cache, 0, k_scale) - given).abs() <= size * step + lowest).all()


@on_gpu
def test_offsets_of_scales_past_two_billion_elements_do_not_wrap():
    """Two slots whose scales lie more than 2^31 numbers apart."""
    far = 2**31 + 8
    scale = torch.zeros(far + 8, device="cuda").as_strided((2, 1, 1), (far, 1, 1))
    k = randn(2, 1, DIM)
    caches = [fresh(torch.int8, heads=1, blocks=2, block_size=1) for _ in range(2)]
    kernels.store_kv(k, k, *caches, ids(1, 0), k_scale=scale, v_scale=scale.clone())
    assert scale.flatten().tolist() == (k.abs().amax(-1).flip(0).flatten() / torch.full((2,), 127.0).cuda()).tolist()


@on_gpu
@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_kernel_and_reference_agree_over_the_wide_matrix(dtype, head_dim):
    k, v = randn(70, 8, head_dim, dtype=torch.bfloat16), randn(70, 8, head_dim, dtype=torch.bfloat16, seed=1) * 50
    slots = torch.randperm(128, generator=torch.Generator().manual_seed(0))[:70]
    slots[::7] = -1
    for per in ("head", "slot", "both"):
        store_both_ways(k, v, dtype, per, slots.cuda(), head_dim=head_dim, heads=8, blocks=8, block_size=16)


@on_gpu
@pytest.mark.parametrize("by_hand", [False, True])
def test_any_bits_of_a_float_are_rounded_as_torch_rounds_them(by_hand, monkeypatch):
    """Sixteen million float32, drawn by their bits: NaNs, infinities and subnormals among them."""
    if by_hand:
        monkeypatch.setattr(quantize, "cast_of", lambda dtype: None)
    bits = torch.randint(-(2**31), 2**31, (1 << 17, 1, 128), dtype=torch.int64, device="cuda")
    numbers = bits.to(torch.int32).view(torch.float32)
    slots = torch.arange(len(numbers), device="cuda")
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        k_cache, v_cache = (torch.zeros(len(numbers), 1, 1, 128, dtype=dtype, device="cuda") for _ in range(2))
        kernels.store_kv(numbers, numbers, k_cache, v_cache, slots)
        assert_same_bits(k_cache.flatten(0, 1), quantized(numbers, dtype, None))
        assert_near(v_cache.flatten(0, 1).float().nan_to_num(0), k_cache.flatten(0, 1).float().nan_to_num(0))
