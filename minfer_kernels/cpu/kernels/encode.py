"""Encoding float32 values as blocks of a weight format, to the bytes of `minfer_ir.formats`.

What a kernel can't encode to those bytes, because it is an error or lies where numpy's own corners decide, it tells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.compiler.kernel import Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.kernels.parts.encode_chunks import CHUNKS
from minfer_kernels.cpu.kernels.parts.encode_small import float_encoder, int8_encoder, small_int_encoder
from minfer_kernels.cpu.kernels.parts.encode_super import affine_encoder, centred_encoder, iq4_encoder
from minfer_kernels.cpu.simd import inline, smaller
from minfer_kernels.cpu.simd.scalars import store_i8


def _without_tries(encode: Callable[..., Any]) -> Callable[..., Any]:
    @inline
    def untried(x: int, out: int, count: int, _tries: int, _n_tries: int) -> Any:
        return encode(x, out, count)

    return untried


def _encoder(name: str) -> Callable[..., Any]:
    if name in ("F16", "BF16"):
        return _without_tries(float_encoder(name))
    if name == "Q8_0":
        return _without_tries(int8_encoder())
    if name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        return _without_tries(small_int_encoder(name))
    if name == "IQ4_NL":
        return iq4_encoder()
    return centred_encoder(name) if name in ("Q3_K", "Q6_K") else affine_encoder(name)


@kernel_family
def blocks(name: str) -> Kernel:
    """Encode `n_blocks` blocks into `out`, which holds zeros; odd[i] becomes 1 where it can't do chunk i."""
    encode, chunk = _encoder(name.upper()), CHUNKS[name.upper()]
    per_chunk, x_bytes, out_bytes = chunk.blocks, chunk.blocks * 4 * chunk.elements, chunk.blocks * chunk.nbytes

    @kernel
    def blocks(x: Ptr, out: Ptr, n_blocks: Int, tries: Ptr, n_tries: Int, odd: Ptr) -> None:
        for i in range((n_blocks + per_chunk - 1) // per_chunk):
            count = smaller(per_chunk, n_blocks - per_chunk * i)
            if encode(x + x_bytes * i, out + out_bytes * i, count, tries, n_tries) != 0:
                store_i8(odd + i, 1)

    return blocks
