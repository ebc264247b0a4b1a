"""Turn floats into 8-bit numbers: the nearest, ties to even; a number that is too large becomes the largest.

From sm_89 on, a GPU casts to float8 in this way. Elsewhere it is done by hand, on bits: earlier GPUs have no
float8_e4m3fn, and Triton's interpreter casts float32 to float8 wrongly (it can lose a factor of two). The results are
the same.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import torch
import triton
import triton.language as tl

from kernels import launch

# How an 8-bit number is made up: bits of mantissa, and bias of the exponent. Integers have neither.
FORMATS = {torch.int8: (0, 0), torch.float8_e4m3fn: (3, 7), torch.float8_e5m2: (2, 15)}
TRITON_TYPE = {torch.float8_e4m3fn: tl.float8e4nv, torch.float8_e5m2: tl.float8e5}


def cast_of(dtype: torch.dtype) -> tl.dtype | None:
    """Return Triton's name of a float8 that this machine casts to as it should; None for what is rounded by hand."""
    rounds = launch.COMPILED and torch.cuda.get_device_capability() >= (8, 9)
    return TRITON_TYPE.get(dtype) if rounds else None


@triton.jit
def to_eight_bits(x, LARGEST: tl.constexpr, MANTISSA: tl.constexpr, BIAS: tl.constexpr, CAST: tl.constexpr):
    """Return the bits, uint8, of float32 numbers in an 8-bit format; a NaN stays one in float8, and is 0 in int8."""
    if CAST is not None:
        return x.to(CAST).to(tl.uint8, bitcast=True)
    if MANTISSA == 0:
        limited = tl.where(x == x, tl.maximum(tl.minimum(x, LARGEST), -LARGEST), 0.0)
        # 1.5 * 2^23 more leaves no room for fractions: the sum is rounded, and its low bits are the integer.
        bits = (limited + 12582912.0).to(tl.int32, bitcast=True)
    else:
        size = tl.minimum(tl.abs(x), LARGEST)
        # The float32's own bits, cut after MANTISSA bits of its mantissa: half of the last bit kept, less 1 unless that
        # is odd, carries where it has to be rounded up, into the exponent too.
        SHIFT: tl.constexpr = 23 - MANTISSA
        normal = size.to(tl.int32, bitcast=True)
        normal = (normal + ((1 << (SHIFT - 1)) - 1) + ((normal >> SHIFT) & 1)) >> SHIFT
        normal -= (127 - BIAS) << MANTISSA
        # Below 2^(1 - BIAS) numbers are as far apart as the first of those: 2^23 steps more leave whole steps.
        STEPS_BITS: tl.constexpr = (127 + 24 - BIAS - MANTISSA) << 23
        steps = tl.full(size.shape, STEPS_BITS, tl.int32)
        small = (size + steps.to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True) - STEPS_BITS
        bits = tl.where(normal < (1 << MANTISSA), small, normal)
        sign = (x.to(tl.int32, bitcast=True) >> 24) & 0x80
        bits = tl.where(x == x, bits | sign, 0x7F)
    return (bits & 0xFF).to(tl.uint8)


@triton.jit
def scale_of(x, LARGEST: tl.constexpr):
    """Return for each row of x [rows, dims] the scale under which its largest number is the format's, [rows, 1].

    Rows of zeros, or of numbers too small to have a scale, get 1. A NaN or inf gives inf: all of its row reads as NaN.
    """
    # Sizes compare like their bits, and a NaN above inf, which it then is.
    largest = tl.minimum(tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 1), 0x7F800000)
    largest = largest.to(tl.float32, bitcast=True)[:, None]
    scale = tl.div_rn(largest, tl.full(largest.shape, LARGEST, tl.float32))
    # The smallest float32 that keeps all its bits.
    return tl.where(scale >= 1.1754943508222875e-38, scale, 1.0)
