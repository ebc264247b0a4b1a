"""Turn 8-bit numbers into float16, exactly and four at a time, where the decode kernel has just loaded them.

By itself, the compiler converts values only after it has laid them out for the dot. No instruction lays out single
bytes, so the kernel would read V from shared memory byte by byte. That would take longer than reading it from memory.
"""

# Triton kernels are untyped by nature; the launchers are not.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

# $2 holds four numbers; $0 and $1 take two float16 each.
E4M3 = tl.constexpr(
    """{ .reg .b16 low, high;
    mov.b32 {low, high}, $2;
    cvt.rn.f16x2.e4m3x2 $0, low;
    cvt.rn.f16x2.e4m3x2 $1, high; }"""
)
# float8_e5m2 is the upper half of a float16.
E5M2 = tl.constexpr(
    """prmt.b32 $0, $2, 0, 0x1404;
    prmt.b32 $1, $2, 0, 0x3424;"""
)
# 0x64 above a byte u is the float16 number 1024 + u, and an int8 x is u = x + 128: take 1152 (0x6480) away.
INT8 = tl.constexpr(
    """{ .reg .b32 u, bias;
    xor.b32 u, $2, 0x80808080;
    mov.b32 bias, 0x64806480;
    prmt.b32 $0, u, 0x64646464, 0x4140;
    prmt.b32 $1, u, 0x64646464, 0x4342;
    sub.rn.f16x2 $0, $0, bias;
    sub.rn.f16x2 $1, $1, bias; }"""
)


@triton.jit
def widen(x, TYPE: tl.constexpr, IN_PLACE: tl.constexpr):
    """Convert to TYPE. With IN_PLACE 8-bit numbers are converted before the compiler may move them about.

    Instructions that are not pure are not moved: that alone keeps the conversion where it is written.
    """
    if tl.float16 == TYPE and x.dtype == tl.float8e4nv:
        return tl.inline_asm_elementwise(E4M3, "=&r,=&r,r", [x], tl.float16, is_pure=not IN_PLACE, pack=4)
    elif tl.float16 == TYPE and x.dtype == tl.float8e5:
        return tl.inline_asm_elementwise(E5M2, "=&r,=&r,r", [x], tl.float16, is_pure=not IN_PLACE, pack=4)
    elif tl.float16 == TYPE and x.dtype == tl.int8:
        return tl.inline_asm_elementwise(INT8, "=&r,=&r,r", [x], tl.float16, is_pure=not IN_PLACE, pack=4)
    else:
        return x.to(TYPE)
