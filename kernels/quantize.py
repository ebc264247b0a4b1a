"""Floats to numbers of 8 bits, rounded by hand: to nearest, ties to even, and what is too large to the largest.

By hand, because Triton's interpreter casts float32 to float8 wrongly (it can lose a factor of two), and a compiled cast
to float8_e4m3fn needs sm_89. Adding and shifting bits is the same everywhere, and as exact as torch's casts.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import torch
import triton
import triton.language as tl

# How an 8-bit number is made up: bits of mantissa, and bias of the exponent. Integers have neither.
FORMATS = {torch.int8: (0, 0), torch.float8_e4m3fn: (3, 7), torch.float8_e5m2: (2, 15)}


@triton.jit
def to_eight_bits(x, LARGEST: tl.constexpr, MANTISSA: tl.constexpr, BIAS: tl.constexpr):
    """Return the bits, uint8, of float32 numbers in an 8-bit format; a NaN stays one in float8, and is 0 in int8."""
    size = tl.minimum(tl.abs(x), LARGEST)
    if MANTISSA == 0:
        # 1.5 * 2^23 more leaves no room for fractions: the sum is rounded, and its low bits are the integer.
        shifted = tl.where(x < 0.0, -size, size) + 12582912.0
        bits = tl.where(x == x, shifted.to(tl.int32, bitcast=True) - 0x4B400000, 0)
    else:
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
    largest = tl.max(tl.where(x == x, tl.abs(x), float("inf")), 1)[:, None]
    scale = tl.div_rn(largest, tl.full(largest.shape, LARGEST, tl.float32))
    # The smallest float32 that keeps all its bits.
    return tl.where(scale >= 1.1754943508222875e-38, scale, 1.0)
