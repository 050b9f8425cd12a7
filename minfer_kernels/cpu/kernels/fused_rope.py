"""Rope together with the norm before it and the store behind it; each gives the bits of the kernels it stands for.

A work item is one head of one row. `table`, `positions` and the pairings are those of `rope`; `norm` is "norm" or
"plain".
"""

from __future__ import annotations

from minfer_kernels.cpu.compiler.kernel import F32, Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.kernels.norm import norm_row
from minfer_kernels.cpu.kernels.parts.cell_rows import cell_writer
from minfer_kernels.cpu.kernels.parts.rows import first_item
from minfer_kernels.cpu.kernels.rope import copy_elements, rotation
from minfer_kernels.cpu.simd import load_i32


@kernel_family
def norm(pairs: str) -> Kernel:
    """Norm and rotate every head of x into out; in place is allowed."""
    rotate = rotation(pairs)

    @kernel
    def norm(
        x: Ptr, weight: Ptr, positions: Ptr, table: Ptr, out: Ptr, rows_at: Ptr, n_heads: Int, head_dim: Int,
        dims: Int, x_stride: Int, x_head_stride: Int, out_stride: Int, out_head_stride: Int, table_stride: Int,
        eps: F32, tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        items = load_i32(rows_at) * n_heads
        for item in range(first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)):
            row, head = item // n_heads, item % n_heads
            cos = table + load_i32(positions + 4 * row) * table_stride
            to = out + row * out_stride + head * out_head_stride
            norm_row(x + row * x_stride + head * x_head_stride, weight, to, head_dim, eps)
            rotate(to, to, cos, cos + 2 * dims, dims)

    return norm


@kernel_family
def store(pairs: str, norm: str, cell_type: str) -> Kernel:
    """Rotate heads, normed first or as they are, and write them into the cells of `region`.

    `scratch` holds a head of float32 per thread, `scratch_stride` bytes apart.
    """
    rotate, write, is_normed = rotation(pairs), cell_writer(cell_type), norm == "norm"

    @kernel
    def store(
        x: Ptr, weight: Ptr, positions: Ptr, table: Ptr, region: Ptr, cells: Ptr, rows_at: Ptr, scratch: Ptr,
        n_heads: Int, head_dim: Int, dims: Int, x_stride: Int, x_head_stride: Int, cell_bytes: Int, table_stride: Int,
        scratch_stride: Int, eps: F32, tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        turned = scratch + tid * scratch_stride
        items = load_i32(rows_at) * n_heads
        for item in range(first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)):
            row, head = item // n_heads, item % n_heads
            x_head = x + row * x_stride + head * x_head_stride
            if is_normed:
                norm_row(x_head, weight, turned, head_dim, eps)
            else:
                copy_elements(x_head, turned, head_dim)
            cos = table + load_i32(positions + 4 * row) * table_stride
            rotate(turned, turned, cos, cos + 2 * dims, dims)
            write(turned, region + load_i32(cells + 4 * row) * cell_bytes, head * head_dim, head_dim)

    return store
