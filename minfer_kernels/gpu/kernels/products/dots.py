"""Products of up to 16 rows of activations with a few rows of a weight: every weight is read once for all of them.

The canonical order, whatever the number of rows: lane u of LANES takes units u, u + LANES, ... in ascending order, each
one's exact integer sum scaled in float32 and added to the lane; then the lanes are added up by `tl.sum`. Floats (F32,
F16, BF16) take elements in the place of units.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from minfer_kernels.gpu.kernels.dot4 import dot4
from minfer_kernels.gpu.planes import decode
from minfer_kernels.gpu.planes.layouts import LAYOUTS

# Constants reach a kernel as Python values: pyright: reportArgumentType=false, reportGeneralTypeIssues=false


@triton.constexpr_function
def is_float(fmt: Any) -> Any:
    """Whether the weights are one plane of floats."""
    return not LAYOUTS[fmt].bits


@triton.jit
def dots(
    x,
    x_stride,
    n_rows,
    quants,
    high,
    scales,
    sub,
    row,
    n,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    EIGHT_BIT: tl.constexpr,
    DP4A: tl.constexpr,
):
    """ROWS tensors `[B]` float32: products of the first rows of `x` with the weight's rows `row` `[B]` below `n`.

    `x` *u8, rows of `x_stride` bytes: float32, or 8-bit blocks where EIGHT_BIT. Rows at `n_rows` or beyond read as 0.
    """
    if is_float(FORMAT):
        return _float_dots(x, x_stride, n_rows, quants, row, n, K, FORMAT, ROWS, LANES, DP4A)
    elif EIGHT_BIT:
        return _integer_dots(x, x_stride, n_rows, quants, high, scales, sub, row, n, K, FORMAT, ROWS, LANES, DP4A)
    else:
        return _half_dots(x, x_stride, n_rows, quants, high, scales, sub, row, n, K, FORMAT, ROWS, LANES, DP4A)


@triton.jit
def _integer_dots(
    x,
    x_stride,
    n_rows,
    quants,
    high,
    scales,
    sub,
    row,
    n,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    DP4A: tl.constexpr,
):
    sums = ()
    for _ in tl.static_range(ROWS):
        sums = sums + (tl.zeros([row.shape[0], LANES], tl.float32),)
    for first in range(0, K // 32, LANES):
        unit = (first + tl.arange(0, LANES))[None, :]
        there = unit < K // 32
        inside = (row < n)[:, None] & there
        low, upper = decode.load_quads(
            quants, high, row[:, None, None], unit[:, :, None], inside[:, :, None], K, FORMAT, DP4A
        )
        terms = _unit_scales(scales, sub, row[:, None], unit, inside, K, FORMAT)
        more = ()
        for t in tl.static_range(ROWS):
            at = x + t * tl.cast(x_stride, tl.int64)
            more = more + (
                sums[t]
                + _scaled(at, unit, unit < tl.where(t < n_rows, K // 32, 0), low, upper, terms, K, FORMAT, DP4A),
            )
        sums = more
    totals = ()
    for t in tl.static_range(ROWS):
        totals = totals + (tl.sum(sums[t], 1),)
    return totals


@triton.jit
def _unit_scales(scales, sub, row, unit, inside, K: tl.constexpr, FORMAT: tl.constexpr):
    """(d, minimum, scales of both halves, offsets of both halves) of units."""
    if decode.has_sub(FORMAT):
        d, minimum = decode.load_scales(scales, row, unit // 8, inside, K, FORMAT)
        first, second, offset, other = decode.load_sub(sub, row, unit, inside, K, FORMAT)
        return d, minimum, first, second, offset, other
    else:
        d, minimum = decode.load_scales(scales, row, unit, inside, K, FORMAT)
        return d, minimum, d, d, d, d


@triton.jit
def _scaled(x, unit, there, low, upper, terms, K: tl.constexpr, FORMAT: tl.constexpr, DP4A: tl.constexpr):
    """What units add to the products with one row of 8-bit activations: float32 `[B, LANES]`."""
    words = x.to(tl.pointer_type(tl.int32)) + unit[:, :, None] * 8 + tl.arange(0, 4)
    x_low = tl.load(words, mask=there[:, :, None], other=0)
    x_upper = tl.load(words + 4, mask=there[:, :, None], other=0)
    floats = (x + K).to(tl.pointer_type(tl.float32))
    if decode.has_sub(FORMAT):
        return _super_block(floats, unit, there, low, upper, x_low, x_upper, terms, K, FORMAT, DP4A)
    else:
        return _block(floats, unit, there, low, upper, x_low, x_upper, terms, K, FORMAT, DP4A)


@triton.jit
def _block(
    floats,
    unit,
    there,
    low,
    upper,
    x_low,
    x_upper,
    terms,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    DP4A: tl.constexpr,
):
    d, minimum, _, _, _, _ = terms
    CENTRE: tl.constexpr = decode.centre_of(FORMAT)
    dot = tl.sum(dot4(upper, x_upper, dot4(low, x_low, tl.zeros(low.shape, tl.int32), DP4A), DP4A), 2)
    x_d = tl.load(floats + unit, mask=there, other=0.0)
    sums = (floats + K // 32).to(tl.pointer_type(tl.int32)) + unit
    if decode.has_minimum(FORMAT):
        total = tl.load(sums, mask=there, other=0)
        return dot.to(tl.float32) * (d * x_d) + minimum * (x_d * total.to(tl.float32))
    elif CENTRE > 0:
        dot -= CENTRE * tl.load(sums, mask=there, other=0)
        return dot.to(tl.float32) * (d * x_d)
    else:
        return dot.to(tl.float32) * (d * x_d)


@triton.jit
def _super_block(
    floats,
    unit,
    there,
    low,
    upper,
    x_low,
    x_upper,
    terms,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    DP4A: tl.constexpr,
):
    d, minimum, first, second, offset, other = terms
    CENTRE: tl.constexpr = decode.centre_of(FORMAT)
    nothing = tl.zeros(low.shape, tl.int32)
    x_d = tl.load(floats + unit // 8, mask=there, other=0.0)
    halves = (floats + K // 256).to(tl.pointer_type(tl.int16)) + unit * 2
    total = tl.load(halves, mask=there, other=0).to(tl.int32)
    rest = tl.load(halves + 1, mask=there, other=0).to(tl.int32)
    # The sums of scaled halves stay below 2 ** 24, so that float32 has them exactly: of Q6_K, the largest,
    # 128 * (16 * 127 * 32) twice.
    if decode.whole_units(FORMAT):
        dot = first * tl.sum(dot4(upper, x_upper, dot4(low, x_low, nothing, DP4A), DP4A), 2)
        offsets = offset * (total + rest)
    else:
        dot = first * (tl.sum(dot4(low, x_low, nothing, DP4A), 2) - CENTRE * total)
        dot += second * (tl.sum(dot4(upper, x_upper, nothing, DP4A), 2) - CENTRE * rest)
        offsets = offset * total + other * rest
    if decode.has_minimum(FORMAT):
        return (dot.to(tl.float32) * d - offsets.to(tl.float32) * minimum) * x_d
    else:
        return dot.to(tl.float32) * d * x_d


@triton.jit
def _half_dots(
    x,
    x_stride,
    n_rows,
    quants,
    high,
    scales,
    sub,
    row,
    n,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    DP4A: tl.constexpr,
):
    """Activations rounded to float16 times decoded weights, a unit's terms from its first element on."""
    sums = ()
    for _ in tl.static_range(ROWS):
        sums = sums + (tl.zeros([row.shape[0], LANES, 4], tl.float32),)
    for first in range(0, K // 32, LANES):
        unit = (first + tl.arange(0, LANES))[None, :, None]
        there = unit < K // 32
        inside = (row < n)[:, None, None] & there
        at = row[:, None, None]
        low, upper = decode.load_quads(quants, high, at, unit, inside, K, FORMAT, DP4A)
        scale, other_scale, minimum, other_minimum = decode.unit_terms(scales, sub, at, unit, inside, K, FORMAT)
        element = unit * 32 + tl.arange(0, 4) * 4
        for j in tl.static_range(4):
            first_half = decode.weights_of(low, scale, minimum, j, FORMAT)
            second_half = decode.weights_of(upper, other_scale, other_minimum, j, FORMAT)
            more = ()
            for t in tl.static_range(ROWS):
                begin = (x + t * tl.cast(x_stride, tl.int64)).to(tl.pointer_type(tl.float32)) + element + j
                live = unit < tl.where(t < n_rows, K // 32, 0)
                a = tl.load(begin, mask=live, other=0.0).to(tl.float16).to(tl.float32)
                b = tl.load(begin + 16, mask=live, other=0.0).to(tl.float16).to(tl.float32)
                more = more + (sums[t] + a * first_half + b * second_half,)
            sums = more
    totals = ()
    for t in tl.static_range(ROWS):
        totals = totals + (tl.sum(tl.sum(sums[t], 2), 1),)
    return totals


@triton.jit
def _float_dots(
    x,
    x_stride,
    n_rows,
    values,
    row,
    n,
    K: tl.constexpr,
    FORMAT: tl.constexpr,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    DP4A: tl.constexpr,
):
    sums = ()
    for _ in tl.static_range(ROWS):
        sums = sums + (tl.zeros([row.shape[0], LANES], tl.float32),)
    start = row.to(tl.int64)[:, None] * decode.stride_of(FORMAT, "values", K)
    # Other vendors' scalar registers hold what is hoisted: addresses of 16 rows are too many.
    for first in tl.range(0, K, LANES, disable_licm=not DP4A):
        at = (first + tl.arange(0, LANES))[None, :]
        there = at < K
        w = tl.load(values + start + at, mask=(row < n)[:, None] & there, other=0.0).to(tl.float32)
        more = ()
        for t in tl.static_range(ROWS):
            begin = (x + t * tl.cast(x_stride, tl.int64)).to(tl.pointer_type(tl.float32))
            more = more + (sums[t] + w * tl.load(begin + at, mask=at < tl.where(t < n_rows, K, 0), other=0.0),)
        sums = more
    totals = ()
    for t in tl.static_range(ROWS):
        totals = totals + (tl.sum(sums[t], 1),)
    return totals
