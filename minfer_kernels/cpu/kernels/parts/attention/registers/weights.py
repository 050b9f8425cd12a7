"""e**x, as softmax weights need it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.kernels.parts.attention.registers.loops import (
    V16F,
    V16I,
    fma16,
    zeros16,
)
from minfer_kernels.cpu.simd.core import (
    const,
    f32x16,
    op,
)


@op(f32x16, f32x16)
def exp_weight(b: ir.IRBuilder, x: Any) -> Any:
    """e**x for x up to 0: 1 at 0, 0 below -87, NaN kept; 2 ulp where it is above 1e-3, 5 ulp at its smallest.

    x = n ln2 + r with ln2 in one float32, whose error counts only where the weight is tiny; a polynomial of degree 5 in
    r, minimax for the relative error; one power of two.
    """
    magic = const(V16F, 12582912.0)
    shifted = fma16(b, x, const(V16F, 1.44269504088896341), magic)
    n = b.fsub(shifted, magic)
    r = fma16(b, n, const(V16F, -0.693147182464599609375), x)
    p: Any = const(V16F, float.fromhex("0x1.0fa77cp-7"))
    for c in ("0x1.573b4cp-5", "0x1.555a70p-3", "0x1.fffdc2p-2", "0x1.fffff6p-1", "0x1p0"):
        p = fma16(b, p, r, const(V16F, float.fromhex(c)))
    bits = b.add(b.shl(b.bitcast(shifted, V16I), const(V16I, 23)), const(V16I, 127 << 23))
    scaled = b.fmul(p, b.bitcast(bits, V16F))
    return b.select(b.fcmp_ordered("<", x, const(V16F, -87.0)), zeros16(), scaled)
