"""Products with what makes heads or cells of them, one to a launch, or the three over one layer's activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import triton
import triton.language as tl

from minfer_kernels.gpu.configuration import Configuration
from minfer_kernels.gpu.kernels.cells import LAYOUTS as CELL_LAYOUTS
from minfer_kernels.gpu.kernels.products.choices import StreamTile, stream_tile
from minfer_kernels.gpu.kernels.products.finished import NO_CELLS, project
from minfer_kernels.gpu.kernels.products.stream import plane_types
from minfer_kernels.gpu.targets import Target

# Constants reach a kernel as Python values: pyright: reportArgumentType=false, reportGeneralTypeIssues=false


@triton.jit
def one(
    x, rows_at, quants, high, scales, sub, bias, weight, positions, table, region, cells, values, out, counters, n,
    x_stride, values_stride, out_stride, cell_bytes, eps,
    K: tl.constexpr, FORMAT: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, LANES: tl.constexpr,
    EIGHT_BIT: tl.constexpr, DP4A: tl.constexpr, ADD: tl.constexpr, NORM: tl.constexpr, PAIRS: tl.constexpr,
    BY_ROW: tl.constexpr, LAYOUT: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr,
    HEADS: tl.constexpr, WIDE: tl.constexpr, HALF: tl.constexpr, REST: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """One product, see `project`."""
    n_rows = tl.load(rows_at)
    project(
        tl.program_id(0), n_rows, x, x_stride, quants, high, scales, sub, bias, weight, positions, table, region,
        cells, values, out, counters, n, values_stride, out_stride, cell_bytes, eps, K, FORMAT, ROWS, TILE, LANES,
        EIGHT_BIT, DP4A, ADD, NORM, PAIRS, BY_ROW, LAYOUT, GROUP, HEAD_DIM, DIMS, HEADS, WIDE, HALF, REST, BLOCKS,
    )  # fmt: skip


@triton.jit
def three(
    x, rows_at, x_stride, first, second, a_quants, a_high, a_scales, a_sub, a_bias, a_weight, a_positions, a_table,
    a_region, a_cells, a_values, a_out, a_counters, a_n, a_values_stride, a_out_stride, a_cell_bytes, a_eps,
    b_quants, b_high, b_scales, b_sub, b_bias, b_weight, b_positions, b_table, b_region, b_cells, b_values, b_out,
    b_counters, b_n, b_values_stride, b_out_stride, b_cell_bytes, b_eps, c_quants, c_high, c_scales, c_sub, c_bias,
    c_weight, c_positions, c_table, c_region, c_cells, c_values, c_out, c_counters, c_n, c_values_stride,
    c_out_stride, c_cell_bytes, c_eps,
    K: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr, EIGHT_BIT: tl.constexpr, DP4A: tl.constexpr,
    A_FORMAT: tl.constexpr, A_TILE: tl.constexpr, A_ADD: tl.constexpr, A_NORM: tl.constexpr, A_PAIRS: tl.constexpr,
    A_BY_ROW: tl.constexpr, A_LAYOUT: tl.constexpr, A_GROUP: tl.constexpr, A_HEAD_DIM: tl.constexpr,
    A_DIMS: tl.constexpr, A_HEADS: tl.constexpr, A_WIDE: tl.constexpr, A_HALF: tl.constexpr, A_REST: tl.constexpr,
    A_BLOCKS: tl.constexpr,
    B_FORMAT: tl.constexpr, B_TILE: tl.constexpr, B_ADD: tl.constexpr, B_NORM: tl.constexpr, B_PAIRS: tl.constexpr,
    B_BY_ROW: tl.constexpr, B_LAYOUT: tl.constexpr, B_GROUP: tl.constexpr, B_HEAD_DIM: tl.constexpr,
    B_DIMS: tl.constexpr, B_HEADS: tl.constexpr, B_WIDE: tl.constexpr, B_HALF: tl.constexpr, B_REST: tl.constexpr,
    B_BLOCKS: tl.constexpr,
    C_FORMAT: tl.constexpr, C_TILE: tl.constexpr, C_ADD: tl.constexpr, C_NORM: tl.constexpr, C_PAIRS: tl.constexpr,
    C_BY_ROW: tl.constexpr, C_LAYOUT: tl.constexpr, C_GROUP: tl.constexpr, C_HEAD_DIM: tl.constexpr,
    C_DIMS: tl.constexpr, C_HEADS: tl.constexpr, C_WIDE: tl.constexpr, C_HALF: tl.constexpr, C_REST: tl.constexpr,
    C_BLOCKS: tl.constexpr,
):  # fmt: skip
    """Three products of `x`, each in a format of its own: programs below `first`, below `second`, and the rest."""
    n_rows = tl.load(rows_at)
    program = tl.program_id(0)
    if program < first:
        project(
            program, n_rows, x, x_stride, a_quants, a_high, a_scales, a_sub, a_bias, a_weight, a_positions, a_table,
            a_region, a_cells, a_values, a_out, a_counters, a_n, a_values_stride, a_out_stride, a_cell_bytes, a_eps,
            K, A_FORMAT, ROWS, A_TILE, LANES, EIGHT_BIT, DP4A, A_ADD, A_NORM, A_PAIRS, A_BY_ROW, A_LAYOUT, A_GROUP,
            A_HEAD_DIM, A_DIMS, A_HEADS, A_WIDE, A_HALF, A_REST, A_BLOCKS,
        )  # fmt: skip
    elif program < second:
        project(
            program - first, n_rows, x, x_stride, b_quants, b_high, b_scales, b_sub, b_bias, b_weight, b_positions,
            b_table, b_region, b_cells, b_values, b_out, b_counters, b_n, b_values_stride, b_out_stride,
            b_cell_bytes, b_eps, K, B_FORMAT, ROWS, B_TILE, LANES, EIGHT_BIT, DP4A, B_ADD, B_NORM, B_PAIRS, B_BY_ROW,
            B_LAYOUT, B_GROUP, B_HEAD_DIM, B_DIMS, B_HEADS, B_WIDE, B_HALF, B_REST, B_BLOCKS,
        )  # fmt: skip
    else:
        project(
            program - second, n_rows, x, x_stride, c_quants, c_high, c_scales, c_sub, c_bias, c_weight, c_positions,
            c_table, c_region, c_cells, c_values, c_out, c_counters, c_n, c_values_stride, c_out_stride,
            c_cell_bytes, c_eps, K, C_FORMAT, ROWS, C_TILE, LANES, EIGHT_BIT, DP4A, C_ADD, C_NORM, C_PAIRS, C_BY_ROW,
            C_LAYOUT, C_GROUP, C_HEAD_DIM, C_DIMS, C_HEADS, C_WIDE, C_HALF, C_REST, C_BLOCKS,
        )  # fmt: skip


_POINTERS = {
    **dict.fromkeys(("bias", "weight", "table", "values", "out"), "*fp32"),
    **dict.fromkeys(("positions", "cells", "counters"), "*i32"),
    "region": "*u8",
}
_NUMBERS = {**dict.fromkeys(("n", "values_stride", "out_stride", "cell_bytes"), "i32"), "eps": "fp32"}
_X = {"x": "*u8", "rows_at": "*i32", "x_stride": "i32"}
_ALIGNED = ("bias", "weight", "values", "out", "region", "n", "values_stride", "out_stride", "cell_bytes")


def _segment(
    tile: StreamTile, fmt: str, head_dim: int, layout: str | None, pairs: str, bias: bool, norm: bool
) -> dict[str, Any]:
    """The constants of a segment, as `emit.projections` chooses them."""
    return {
        "FORMAT": fmt,
        "TILE": tile.rows,
        "ADD": bias,
        "NORM": norm,
        "PAIRS": pairs,
        "BY_ROW": False,
        "LAYOUT": NO_CELLS.value if layout is None else CELL_LAYOUTS[layout],
        "GROUP": head_dim,
        "HEAD_DIM": head_dim,
        "DIMS": head_dim,
        "HEADS": 1,
        "WIDE": head_dim,
        "HALF": head_dim // 2,
        "REST": 1,
        "BLOCKS": head_dim // 32,
    }


def _three(
    target: Target,
    name: str,
    k: int,
    head_dim: int,
    formats: Sequence[str],
    cell: str,
    pairs: str,
    bias: bool,
    norm: bool,
) -> Configuration:
    """Queries that rotate, keys that rotate into cells, values that go into cells."""
    kinds = ((None, pairs, norm), (cell, pairs, norm), (cell, "none", False))
    tile = stream_tile(target, formats[0], k, 1)
    signature, constants, aligned = dict(_X), dict[str, Any](), ["x", "x_stride"]
    for letter, fmt, (layout, turning, normed) in zip("abc", formats, kinds, strict=True):
        operands = {**plane_types(fmt), **_POINTERS, **_NUMBERS}
        signature |= {f"{letter}_{key}": value for key, value in operands.items()}
        aligned += [f"{letter}_{key}" for key in (*plane_types(fmt), *_ALIGNED)]
        given = _segment(stream_tile(target, fmt, k, 1), fmt, head_dim, layout, turning, bias, normed)
        constants |= {f"{letter.upper()}_{key}": value for key, value in given.items()}
    signature |= {"first": "i32", "second": "i32"}
    constants |= {"K": k, "ROWS": 1, "LANES": tile.lanes, "EIGHT_BIT": True, "DP4A": True}
    return Configuration(
        f"products.fused_qkv.{name}",
        three,
        signature,
        constants,
        divisible=tuple(aligned),
        warps=tile.warps,
        sampled=name == "7b_Q4_K_mix",
    )


def configurations_for(target: Target) -> Iterator[Configuration]:
    """Of projections, on one device."""
    yield _three(target, "7b_Q8_0", 3584, 128, ("Q8_0",) * 3, "f16", "neox", True, False)
    yield _three(target, "7b_Q4_K_mix", 3584, 128, ("Q4_K", "Q4_K", "Q6_K"), "f16", "neox", True, False)
    yield _three(target, "0.6b_Q4_0_q8_0", 1024, 128, ("Q4_0",) * 3, "q8_0", "neox", False, True)
    yield _three(target, "smollm2_Q4_1", 576, 64, ("Q4_1",) * 3, "f16", "interleaved", False, False)
