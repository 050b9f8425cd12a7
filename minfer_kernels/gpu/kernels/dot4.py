"""The integer dot product of four bytes with four bytes."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def dot4(a, b, c, PTX: tl.constexpr):
    """c + the sum of products of the signed bytes of `a` and `b`, int32 all; `a` and `b` broadcast to the shape of `c`.

    PTX: one instruction of NVIDIA devices from sm_61 on; otherwise shifts and products.
    """
    if PTX:
        return tl.inline_asm_elementwise(
            "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", [a, b, c], dtype=tl.int32, is_pure=True, pack=1
        )
    for i in tl.static_range(4):
        c += ((a << (24 - 8 * i)) >> 24) * ((b << (24 - 8 * i)) >> 24)
    return c
