"""Rotary position embedding by a table of cosines and sines, alone, behind a norm, and into KV cells.

`table` holds for each position `dims` / 2 cosines, then as many sines, float32. The first `dims` elements of a head
rotate in pairs, (a cos - b sin, b cos + a sin), the rest pass through; PAIRS is "neox", (i, i + dims / 2), or
"interleaved", (2 i, 2 i + 1). With BY_ROW the table has a row per row of x instead of one per position.
"""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.configuration import Configuration, Promises
from minfer_kernels.gpu.kernels import cells as kv
from minfer_kernels.gpu.kernels.lanes import inverse_rms


@triton.jit
def angles_row(positions, table, row, dims, BY_ROW: tl.constexpr):
    """Where the cosines of a row begin."""
    if BY_ROW:
        return table + row * dims
    return table + tl.load(positions + row).to(tl.int64) * dims


@triton.jit
def rotate(
    x, weight, positions, table, out, rows_at, n_heads, head_dim, dims, x_stride, out_stride, eps,
    PAIRS: tl.constexpr, NORM: tl.constexpr, BY_ROW: tl.constexpr, HEADS: tl.constexpr, WIDE: tl.constexpr,
    HALF: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """HEADS heads of one row, normed first where NORM. `out` may be `x`: all is read before any is written."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    rotate_heads(
        row, tl.program_id(1) * HEADS, x, weight, positions, table, out, n_heads, head_dim, dims, x_stride, out_stride,
        eps, PAIRS, NORM, BY_ROW, HEADS, WIDE, HALF, REST,
    )  # fmt: skip


@triton.jit
def rotate_heads(
    row, first, x, weight, positions, table, out, n_heads, head_dim, dims, x_stride, out_stride, eps,
    PAIRS: tl.constexpr, NORM: tl.constexpr, BY_ROW: tl.constexpr, HEADS: tl.constexpr, WIDE: tl.constexpr,
    HALF: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """HEADS heads of a row from `first` on. WIDE, HALF and REST hold head_dim, dims / 2 and what doesn't rotate."""
    head = first + tl.arange(0, HEADS)[:, None]
    here, there = x + row * x_stride + head * head_dim, out + row * out_stride + head * head_dim
    half, i = dims // 2, tl.arange(0, HALF)[None, :]
    turning = (head < n_heads) & (i < half)
    cosines = angles_row(positions, table, row, dims, BY_ROW)
    cos, sin = tl.load(cosines + i, mask=i < half), tl.load(cosines + half + i, mask=i < half)
    pair = tl.arange(0, 2)[None, None, :]
    if PAIRS == "neox":
        a, b = tl.load(here + i, mask=turning), tl.load(here + half + i, mask=turning)
    else:
        a, b = tl.split(tl.load((here + 2 * i)[:, :, None] + pair, mask=turning[:, :, None]))
    # Where all rotates, one masked element stands for the rest.
    rest = dims + tl.arange(0, REST)[None, :]
    passing = (head < n_heads) & (rest < head_dim)
    kept = tl.load(here + rest, mask=passing)
    if NORM:
        wide = tl.arange(0, WIDE)[None, :]
        values = tl.load(here + wide, mask=(head < n_heads) & (wide < head_dim), other=0.0)
        inverse = inverse_rms(tl.sum(values * values, 1), head_dim, eps)[:, None]
        first, second = (i, half + i) if PAIRS == "neox" else (2 * i, 2 * i + 1)
        a = a * inverse * tl.load(weight + first, mask=i < half)
        b = b * inverse * tl.load(weight + second, mask=i < half)
        kept = kept * inverse * tl.load(weight + rest, mask=rest < head_dim)
    turned_a, turned_b = a * cos - b * sin, b * cos + a * sin
    if PAIRS == "neox":
        tl.store(there + i, turned_a, mask=turning)
        tl.store(there + half + i, turned_b, mask=turning)
    else:
        tl.store((there + 2 * i)[:, :, None] + pair, tl.join(turned_a, turned_b), mask=turning[:, :, None])
    tl.store(there + rest, kept, mask=passing)


@triton.jit
def store(
    x, weight, positions, table, region, cells, rows_at, width, head_dim, dims, x_stride, cell_bytes, eps,
    PAIRS: tl.constexpr, NORM: tl.constexpr, BY_ROW: tl.constexpr, LAYOUT: tl.constexpr, BLOCKS: tl.constexpr,
    WIDE: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """BLOCKS blocks of 32 elements of row t, its heads normed (where NORM) and rotated, into cell `cells[t]`."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    store_heads(
        row, tl.program_id(1) * BLOCKS, x, weight, positions, table, region, cells, width, head_dim, dims, x_stride,
        cell_bytes, eps, PAIRS, NORM, BY_ROW, LAYOUT, BLOCKS, WIDE, WHOLE,
    )  # fmt: skip


@triton.jit
def store_heads(
    row, first, x, weight, positions, table, region, cells, width, head_dim, dims, x_stride, cell_bytes, eps,
    PAIRS: tl.constexpr, NORM: tl.constexpr, BY_ROW: tl.constexpr, LAYOUT: tl.constexpr, BLOCKS: tl.constexpr,
    WIDE: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """BLOCKS blocks of a row from `first` on.

    Every element fetches the other one of its pair, so blocks may cut heads. WHOLE: heads are whole blocks.
    """
    block = first + tl.arange(0, BLOCKS)
    at = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    here, i, half = x + row * x_stride, at % head_dim, dims // 2
    inside, turning = at < width, (at < width) & (i < dims)
    if PAIRS == "neox":
        leads, pair = i < half, i % half
        other = tl.where(leads, i + half, i - half)
    else:
        leads, pair, other = i % 2 == 0, i // 2, i ^ 1
    mine = tl.load(here + at, mask=inside, other=0.0)
    its = tl.load(here + at - i + other, mask=turning, other=0.0)
    if NORM:
        if WHOLE:
            inverse = _inverse_of_heads(here, block * 32 // head_dim, width, head_dim, eps, WIDE)[:, None]
        else:
            heads = tl.reshape(at // head_dim, [BLOCKS * 32])
            inverse = tl.reshape(_inverse_of_heads(here, heads, width, head_dim, eps, WIDE), [BLOCKS, 32])
        mine = mine * inverse * tl.load(weight + i, mask=inside, other=0.0)
        its = its * inverse * tl.load(weight + other, mask=turning, other=0.0)
    cosines = angles_row(positions, table, row, dims, BY_ROW)
    cos = tl.load(cosines + pair, mask=turning, other=0.0)
    sin = tl.load(cosines + half + pair, mask=turning, other=0.0)
    turned = mine * cos + tl.where(leads, -its, its) * sin
    values = tl.where(turning, turned, mine)
    kv.store_blocks(kv.cell_row(region, tl.load(cells + row), cell_bytes), block, values, width, cell_bytes, LAYOUT)


@triton.jit
def _inverse_of_heads(row, head, width, head_dim, eps, WIDE: tl.constexpr):
    """The inverse root mean squares of heads `head` `[N]` of a row."""
    i = tl.arange(0, WIDE)[None, :]
    at = head[:, None] * head_dim + i
    values = tl.load(row + at, mask=(i < head_dim) & (at < width), other=0.0)
    return inverse_rms(tl.sum(values * values, 1), head_dim, eps)


@triton.jit
def angles(positions, frequencies, factors, numbers, out, rows_at, half, LLAMA3: tl.constexpr, HALF: tl.constexpr):
    """The cosines and sines of one row, where frequency factors are computed: `frequencies` (float64) over `factors`.

    `numbers` are float64: the amplitude; for llama3 also rotations per unit of frequency, its lower limit, the distance
    to the upper one, and the stretch. Angles are float64, as in `minfer_ir.ops.rope`.
    """
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(rows_at):
        return
    i = tl.arange(0, HALF)
    inside = i < half
    frequency = tl.load(frequencies + i, mask=inside, other=0.0)
    frequency = frequency / tl.load(factors + i, mask=inside, other=1.0).to(tl.float64)
    if LLAMA3:
        rotations = frequency * tl.load(numbers + 1)
        keep = (rotations - tl.load(numbers + 2)) / tl.load(numbers + 3)
        keep = tl.minimum(tl.maximum(keep, 0.0), 1.0)
        frequency = keep * frequency + (1.0 - keep) * frequency / tl.load(numbers + 4)
    cos, sin = _cos_sin(tl.load(positions + row).to(tl.float64) * frequency)
    amplitude = tl.load(numbers)
    tl.store(out + row * half * 2 + i, (cos * amplitude).to(tl.float32), mask=inside)
    tl.store(out + row * half * 2 + half + i, (sin * amplitude).to(tl.float32), mask=inside)


@triton.jit
def _cos_sin(angle):
    """Of float64 from 0 to some 1e6, to 1e-10: the library's functions would put their long reduction on the stack."""
    quarter = tl.floor(angle * 0.6366197723675814 + 0.5)
    r = angle - quarter * 1.5707963267948966
    s = r * r
    cos = 1.0 + s * (-1 / 2 + s * (1 / 24 + s * (-1 / 720 + s * (1 / 40320 - s * (1 / 3628800 - s / 479001600)))))
    sin = r + r * s * (-1 / 6 + s * (1 / 120 + s * (-1 / 5040 + s * (1 / 362880 - s / 39916800))))
    turn = quarter.to(tl.int32) & 3
    swapped = (turn & 1) == 1
    c, d = tl.where(swapped, sin, cos), tl.where(swapped, cos, sin)
    return tl.where((turn == 1) | (turn == 2), -c, c), tl.where(turn >= 2, -d, d)


_INTS = ("head_dim", "dims", "x_stride")
_FLOATS = dict.fromkeys(("x", "weight", "table"), "*fp32")
CONFIGURATIONS = (
    *(
        Configuration(
            f"rope.{'norm_' if norm else ''}rotate[{pairs},{head_dim}]",
            rotate,
            {
                **_FLOATS,
                "out": "*fp32",
                **dict.fromkeys(("positions", "rows_at"), "*i32"),
                **dict.fromkeys(("n_heads", "out_stride", *_INTS), "i32"),
                "eps": "fp32",
            },
            {
                "PAIRS": pairs,
                "NORM": norm,
                "BY_ROW": False,
                "HEADS": 1024 // head_dim,
                "WIDE": head_dim,
                "HALF": head_dim // 2,
                "REST": 1,
            },
            divisible=("x", "weight", "table", "out", "out_stride", *_INTS),
            promises=Promises(wide_loads=pairs == "neox"),
            sampled=norm,
        )
        for pairs, norm, head_dim in (("neox", False, 128), ("neox", True, 128), ("interleaved", False, 64))
    ),
    *(
        Configuration(
            f"rope.{'norm_' if norm else ''}store[{pairs},{head_dim},{cell}]",
            store,
            {
                **_FLOATS,
                "region": "*u8",
                **dict.fromkeys(("positions", "cells", "rows_at"), "*i32"),
                **dict.fromkeys(("width", "cell_bytes", *_INTS), "i32"),
                "eps": "fp32",
            },
            {
                "PAIRS": pairs,
                "NORM": norm,
                "BY_ROW": False,
                "LAYOUT": layout,
                "BLOCKS": 16,
                "WIDE": head_dim,
                "WHOLE": True,
            },
            divisible=("x", "weight", "table", "region", "width", "cell_bytes", *_INTS),
            sampled=norm and cell == "q8_0",
        )
        for pairs, norm, head_dim in (("neox", False, 128), ("neox", True, 128), ("interleaved", False, 64))
        for cell, layout in kv.LAYOUTS.items()
    ),
    Configuration(
        "rope.angles[llama3,64]",
        angles,
        {
            **dict.fromkeys(("positions", "rows_at"), "*i32"),
            **dict.fromkeys(("frequencies", "numbers"), "*fp64"),
            **dict.fromkeys(("factors", "out"), "*fp32"),
            "half": "i32",
        },
        {"LLAMA3": True, "HALF": 64},
        divisible=("frequencies", "factors", "out", "half"),
        warps=2,
    ),
)
