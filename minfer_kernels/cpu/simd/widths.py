"""The float32 primitives of a kernel that is written once for groups of eight rows and of sixteen."""

from __future__ import annotations

from typing import NamedTuple

from minfer_kernels.cpu.simd.core import Op
from minfer_kernels.cpu.simd.floats import splat_f32x8, splat_f32x16, splat_i32x8, splat_i32x16
from minfer_kernels.cpu.simd.memory import (
    load_bf16x8,
    load_bf16x16,
    load_f16x8,
    load_f16x16,
    load_f32x8,
    load_f32x8_partial,
    load_f32x16,
    load_f32x16_partial,
    store_f32x8,
    store_f32x8_partial,
    store_f32x16,
    store_f32x16_partial,
)


class Lanes(NamedTuple):
    """Primitives whose name tells their width; all others go by their operands."""

    splat_f32: Op
    splat_i32: Op
    load_f32: Op
    load_f16: Op
    load_bf16: Op
    store_f32: Op
    load_f32_partial: Op
    store_f32_partial: Op


LANES = {
    8: Lanes(
        splat_f32x8, splat_i32x8, load_f32x8, load_f16x8, load_bf16x8, store_f32x8, load_f32x8_partial,
        store_f32x8_partial,
    ),
    16: Lanes(
        splat_f32x16, splat_i32x16, load_f32x16, load_f16x16, load_bf16x16, store_f32x16, load_f32x16_partial,
        store_f32x16_partial,
    ),
}  # fmt: skip
"""By number of lanes."""
