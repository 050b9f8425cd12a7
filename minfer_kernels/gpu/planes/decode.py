"""Planes as kernels read them: quads of quants for integer dot products, and weights as float32.

Everything takes the four planes of a matrix (where the format has no "high" or "sub" any pointer does), rows and units
of any shapes that broadcast, and FORMAT, the format's name. Offsets have 64 bits. What lies outside is 0.
"""

# Constants reach a kernel as Python values: pyright: reportArgumentType=false, reportGeneralTypeIssues=false
# pyright: reportAssignmentType=false

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from minfer_kernels.gpu.planes.layouts import LAYOUTS


@triton.constexpr_function
def _bits(fmt: Any) -> Any:
    return LAYOUTS[fmt].bits


@triton.constexpr_function
def _high_bits(fmt: Any) -> Any:
    return LAYOUTS[fmt].high_bits


@triton.constexpr_function
def centre_of(fmt: Any) -> Any:
    """What is subtracted from a quant."""
    return LAYOUTS[fmt].centre


@triton.constexpr_function
def has_minimum(fmt: Any) -> Any:
    """Whether a block has a minimum beside its scale."""
    return LAYOUTS[fmt].minimum


@triton.constexpr_function
def has_sub(fmt: Any) -> Any:
    """Whether units have sub-scales: the K-quants."""
    return LAYOUTS[fmt].plane("sub") is not None


@triton.constexpr_function
def whole_units(fmt: Any) -> Any:
    """Whether a K-quant's sub-scale belongs to 32 weights, not 16."""
    return fmt in ("Q4_K", "Q5_K")


@triton.constexpr_function
def stride_of(fmt: Any, plane: Any, k: Any) -> Any:
    """Entries from row to row of a plane with `k` columns; 0 where the format doesn't have the plane."""
    found = LAYOUTS[fmt].plane(plane)
    return 0 if found is None else found.stride(k)


@triton.jit
def load_quads(quants, high, row, unit, inside, K: tl.constexpr, FORMAT: tl.constexpr, PTX: tl.constexpr):
    """Quads of the first and the second halves of units: two int32 `[..., U, 4]` of four bytes each.

    `row`, `unit` and `inside` are `[..., U, 1]`. Bytes are unsigned quants before `centre_of` is subtracted; of Q8_0
    signed ones, of IQ4_NL signed levels.
    """
    quad = tl.arange(0, 4)
    BITS: tl.constexpr = _bits(FORMAT)
    HIGH_BITS: tl.constexpr = _high_bits(FORMAT)
    first = quants + row.to(tl.int64) * stride_of(FORMAT, "quants", K)
    if BITS == 8:
        low = tl.load(first + unit * 4 + quad, mask=inside, other=0)
        upper = tl.load(first + K // 8 + unit * 4 + quad, mask=inside, other=0)
    elif BITS == 2:
        low, upper = _two_bits(tl.load(first + unit * 2 + tl.arange(0, 2), mask=inside, other=0))
    elif FORMAT == "IQ4_NL":
        low, upper = _levels(tl.load(first + unit * 4 + quad, mask=inside, other=0), PTX)
    else:
        words = tl.load(first + unit * 4 + quad, mask=inside, other=0)
        low, upper = words & 0x0F0F0F0F, (words >> 4) & 0x0F0F0F0F
    if HIGH_BITS > 0:
        second = high + row.to(tl.int64) * stride_of(FORMAT, "high", K)
        if HIGH_BITS == 2:
            more, most = _two_bits(tl.load(second + unit * 2 + tl.arange(0, 2), mask=inside, other=0))
        else:
            word = tl.load(second + unit, mask=inside, other=0)
            more, most = (word >> quad) & 0x01010101, (word >> (quad + 4)) & 0x01010101
        low, upper = low | (more << BITS), upper | (most << BITS)
    return low, upper


@triton.jit
def _two_bits(words):
    """Words `[..., 2]` of 2-bit numbers to quads `[..., 4]` of both halves."""
    # Joined side by side: quads 2 v and 2 v + 1 come from word v.
    pairs = tl.join(words, words >> 4)
    if len(words.shape) == 3:
        quads = tl.reshape(pairs, [words.shape[0], words.shape[1], 4])
    else:
        quads = tl.reshape(pairs, [words.shape[0], 4])
    return quads & 0x03030303, (quads >> 2) & 0x03030303


@triton.jit
def _levels(words, PTX: tl.constexpr):
    """Words of IQ4_NL to quads of its signed levels."""
    if PTX:
        # Three byte permutations look up four nibbles: among the lower 8 levels, among the upper, and one of the two.
        return tl.inline_asm_elementwise(
            """
            {
            .reg .b32 s, t, a, b, c, d;
            and.b32 s, $2, 0x77777777;
            shr.u32 t, $2, 1;
            and.b32 t, t, 0x44444444;
            or.b32 t, t, 0x32103210;
            prmt.b32 a, 0xBFAD9881, 0xF6EADDCF, s;
            prmt.b32 b, 0x26190D01, 0x71594535, s;
            prmt.b32 c, a, b, t;
            shr.u32 s, s, 16;
            shr.u32 t, t, 16;
            prmt.b32 a, 0xBFAD9881, 0xF6EADDCF, s;
            prmt.b32 b, 0x26190D01, 0x71594535, s;
            prmt.b32 d, a, b, t;
            prmt.b32 $0, c, d, 0x6420;
            prmt.b32 $1, c, d, 0x7531;
            }
            """,
            "=&r,=&r,r",
            [words],
            dtype=(tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
    else:
        low, upper = tl.zeros_like(words), tl.zeros_like(words)
        for i in tl.static_range(4):
            low |= _level((words >> (8 * i)) & 15) << (8 * i)
            upper |= _level((words >> (8 * i + 4)) & 15) << (8 * i)
        return low, upper


@triton.jit
def _level(index):
    """The byte of the level at `index`, 0..255."""
    lower = tl.where(index < 4, 0xBFAD9881 - (1 << 32), 0xF6EADDCF - (1 << 32)).to(tl.int32)
    upper = tl.where(index < 12, 0x26190D01, 0x71594535).to(tl.int32)
    return (tl.where(index < 8, lower, upper) >> ((index & 3) * 8)) & 0xFF


@triton.jit
def load_scales(scales, row, block, inside, K: tl.constexpr, FORMAT: tl.constexpr):
    """A block's d and minimum as float32; the minimum is 0 where the format has none."""
    at = row.to(tl.int64) * stride_of(FORMAT, "scales", K) + block
    found = tl.load(scales + at, mask=inside, other=0)
    if has_minimum(FORMAT):
        d = found.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        return d, (found >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        return found.to(tl.float32), tl.zeros_like(found).to(tl.float32)


@triton.jit
def load_sub(sub, row, unit, inside, K: tl.constexpr, FORMAT: tl.constexpr):
    """Integer scales of the first and the second half of units, and offsets of both, as int32."""
    found = tl.load(sub + row.to(tl.int64) * stride_of(FORMAT, "sub", K) + unit, mask=inside, other=0).to(tl.int32)
    if FORMAT == "Q2_K":
        return found & 15, (found >> 8) & 15, (found >> 4) & 15, (found >> 12) & 15
    elif has_minimum(FORMAT):
        scale, offset = found & 0xFF, (found >> 8) & 0xFF
        return scale, scale, offset, offset
    else:
        return (found << 24) >> 24, found >> 8, found * 0, found * 0


@triton.jit
def unit_terms(scales, sub, row, unit, inside, K: tl.constexpr, FORMAT: tl.constexpr):
    """Four float32 of units, (scale of the first half, of the second, minimum of the first, of the second).

    A weight is (quant - centre) * scale - minimum. All four are exact.
    """
    if has_sub(FORMAT):
        d, dmin = load_scales(scales, row, unit // 8, inside, K, FORMAT)
        first, second, offset, other = load_sub(sub, row, unit, inside, K, FORMAT)
        least, less = offset.to(tl.float32) * dmin, other.to(tl.float32) * dmin
        return first.to(tl.float32) * d, second.to(tl.float32) * d, least, less
    else:
        d, m = load_scales(scales, row, unit, inside, K, FORMAT)
        return d, d, -m, -m


@triton.jit
def weights_of(quads, scale, minimum, J: tl.constexpr, FORMAT: tl.constexpr):
    """Byte J of quads as weights, float32, in one rounding: the bits of the format's `decode`."""
    quant = ((quads << (24 - 8 * J)) >> 24) - centre_of(FORMAT)
    if has_minimum(FORMAT):
        return quant.to(tl.float32) * scale - minimum
    else:
        return quant.to(tl.float32) * scale


@triton.jit
def store_weights(
    out,
    quants,
    high,
    scales,
    sub,
    row,
    unit,
    inside,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    PTX: tl.constexpr,
):
    """Units of one row of a quantized matrix, decoded to `out` (float32, where the row begins).

    `unit` and `inside` are `[U]`, `row` is a number.
    """
    at, there = unit[:, None], inside[:, None]
    low, upper = load_quads(quants, high, row, at, there, K, FORMAT, PTX)
    scale, other_scale, minimum, other_minimum = unit_terms(scales, sub, row, at, there, K, FORMAT)
    for j in tl.static_range(4):
        element = out + at * 32 + tl.arange(0, 4) * 4 + j
        tl.store(element, weights_of(low, scale, minimum, j, FORMAT), mask=there)
        tl.store(element + 16, weights_of(upper, other_scale, other_minimum, j, FORMAT), mask=there)
