"""Storing rows into KV cells."""

from __future__ import annotations

from minfer_kernels.cpu.compiler.kernel import Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.kernels.parts.rows import first_item
from minfer_kernels.cpu.simd import (
    load_f32x8,
    load_f32x8_partial,
    load_i32,
    store_f16x8,
    store_f16x8_partial,
    store_f32x8,
    store_f32x8_partial,
)


@kernel_family
def rows(cell_type: str) -> Kernel:
    """Row t of `values` `[width]` float32 into cell `cells[t]` (int32) of `region`, as f32 or f16.

    float16 rounds half to even and overflows to infinity. Cells were checked before anything ran.
    """
    store, store_partial, element = {
        "f32": (store_f32x8, store_f32x8_partial, 4),
        "f16": (store_f16x8, store_f16x8_partial, 2),
    }[cell_type]

    @kernel
    def rows(
        values: Ptr, region: Ptr, cells: Ptr, rows_at: Ptr, width: Int, values_stride: Int, cell_bytes: Int,
        tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        n_rows = load_i32(rows_at)
        for row in range(first_item(n_rows, tid, n_threads), first_item(n_rows, tid + 1, n_threads)):
            source = values + row * values_stride
            cell = region + load_i32(cells + 4 * row) * cell_bytes
            for i in range(0, width - 7, 8):
                store(cell + element * i, load_f32x8(source + 4 * i))
            rest = width % 8
            i = width - rest
            store_partial(cell + element * i, rest, load_f32x8_partial(source + 4 * i, rest, 0.0))

    return rows
