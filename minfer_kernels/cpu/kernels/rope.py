"""Rotary position embedding by a table of cosines and sines.

`table` holds for each position `[dims / 2]` cosines, then as many sines, float32; `table_stride` bytes a position.
The first `dims` elements of a head rotate in pairs, (a cos - b sin, b cos + a sin), the rest are copied. Both
pairings round alike: one product, then one fused multiply-add. In place is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.compiler.kernel import Int, Kernel, Ptr, kernel
from minfer_kernels.cpu.kernels.parts.rows import first_item
from minfer_kernels.cpu.simd import (
    double_low_lanes,
    fma,
    inline,
    load_f32x4_doubled,
    load_f32x8,
    load_f32x8_partial,
    load_i32,
    negate_even_lanes,
    store_f32x8,
    store_f32x8_partial,
    swap_pairs,
)


@inline
def rotate_neox(x: int, out: int, cos: int, sin: int, dims: int) -> None:
    """Pairs (i, i + dims / 2)."""
    half = dims // 2
    x_high, out_high = x + 4 * half, out + 4 * half
    for i in range(0, half - 7, 8):
        at = 4 * i
        a, b, c, s = load_f32x8(x + at), load_f32x8(x_high + at), load_f32x8(cos + at), load_f32x8(sin + at)
        store_f32x8(out + at, fma(a, c, -(b * s)))
        store_f32x8(out_high + at, fma(b, c, a * s))
    rest = half % 8
    if rest != 0:
        at = 4 * (half - rest)
        a, b = load_f32x8_partial(x + at, rest, 0.0), load_f32x8_partial(x_high + at, rest, 0.0)
        c, s = load_f32x8_partial(cos + at, rest, 0.0), load_f32x8_partial(sin + at, rest, 0.0)
        store_f32x8_partial(out + at, rest, fma(a, c, -(b * s)))
        store_f32x8_partial(out_high + at, rest, fma(b, c, a * s))


@inline
def rotated_pairs(x: Any, c: Any, s: Any) -> Any:
    """Adjacent lanes rotated; c and s hold each cosine and sine twice."""
    return fma(x, c, negate_even_lanes(swap_pairs(x) * s))


@inline
def rotate_interleaved(x: int, out: int, cos: int, sin: int, dims: int) -> None:
    """Pairs (2i, 2i + 1)."""
    for i in range(0, dims - 7, 8):
        c, s = load_f32x4_doubled(cos + 2 * i), load_f32x4_doubled(sin + 2 * i)
        store_f32x8(out + 4 * i, rotated_pairs(load_f32x8(x + 4 * i), c, s))
    rest = dims % 8
    if rest != 0:
        i = dims - rest
        c = double_low_lanes(load_f32x8_partial(cos + 2 * i, rest // 2, 0.0))
        s = double_low_lanes(load_f32x8_partial(sin + 2 * i, rest // 2, 0.0))
        v = load_f32x8_partial(x + 4 * i, rest, 0.0)
        store_f32x8_partial(out + 4 * i, rest, rotated_pairs(v, c, s))


@inline
def copy_elements(x: int, out: int, width: int) -> None:
    """out = x, `width` float32."""
    for i in range(0, width - 7, 8):
        store_f32x8(out + 4 * i, load_f32x8(x + 4 * i))
    rest = width % 8
    at = 4 * (width - rest)
    store_f32x8_partial(out + at, rest, load_f32x8_partial(x + at, rest, 0.0))


def rotation(pairs: str) -> Callable[..., None]:
    """(x, out, cos, sin, dims): the rotation of the first `dims` elements of a head."""
    return {"neox": rotate_neox, "interleaved": rotate_interleaved}[pairs]


def _rope(rotate: Callable[..., None]) -> Kernel:
    @kernel
    def rope(
        x: Ptr, positions: Ptr, table: Ptr, out: Ptr, rows_at: Ptr, n_heads: Int, head_dim: Int, dims: Int,
        x_stride: Int, x_head_stride: Int, out_stride: Int, out_head_stride: Int, table_stride: Int,
        tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        items = load_i32(rows_at) * n_heads
        for item in range(first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)):
            row, head = item // n_heads, item % n_heads
            cos = table + load_i32(positions + 4 * row) * table_stride
            x_head = x + row * x_stride + head * x_head_stride
            out_head = out + row * out_stride + head * out_head_stride
            rotate(x_head, out_head, cos, cos + 2 * dims, dims)
            copy_elements(x_head + 4 * dims, out_head + 4 * dims, head_dim - dims)

    return rope


neox = _rope(rotate_neox)
interleaved = _rope(rotate_interleaved)
