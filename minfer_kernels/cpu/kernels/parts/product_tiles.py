"""Tiles of a matrix product in scratch memory: what fused kernels make, finish and store.

A tile holds, for some rows of x (tokens), the results of a unit of output rows: `[tokens, unit]` float32. An element
has the bits that the plain matmul gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from minfer_kernels.cpu.kernels.parts.group_products import group_products
from minfer_kernels.cpu.kernels.parts.rows import ceil_div
from minfer_kernels.cpu.simd import inline
from minfer_kernels.cpu.weights.layouts import layout_of

Filler = Callable[..., None]


@cache
def tile_filler(fmt: str, group_rows: int) -> Filler:
    """The function that computes tiles with weights of the format with GGML name `fmt` in groups of `group_rows`."""
    layout = layout_of(fmt, group_rows)
    block, block_bytes = layout.block, layout.block_bytes
    multiply = group_products(fmt, group_rows).multiply

    @inline
    def fill(
        w: Any, row: Any, count: Any, k: Any, x: Any, x_stride: Any, tokens: Any, tile: Any, tile_stride: Any
    ) -> None:
        """tile[t, i] = x[t] * w[row + i] for i < count; `row` starts a group, and the last one is written whole."""
        n_blocks = k // block
        first = row // group_rows
        for g in range(ceil_div(count, group_rows)):
            group, at = w + (first + g) * n_blocks * block_bytes, tile + 4 * group_rows * g
            multiply(group, n_blocks, k, group_rows, x, x_stride, at, tile_stride, 0, tokens)

    return fill
