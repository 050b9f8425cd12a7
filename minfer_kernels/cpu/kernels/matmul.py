"""Matrix products with packed weights: `matmul.matmul[q4_1,16]` and so on, by weight format and rows of a group.

out[t, n] = sum over k of x[t, k] * w[n, k]. A thread takes a range of groups of output rows. One row of x reads
each weight once (gemv); more rows are taken in tiles of tokens, so that a decoded weight meets all tokens of a tile,
and a group's weights stay in cache while it meets a panel of them. An element's arithmetic is the same everywhere
(`decoders.protocol`).
"""

from __future__ import annotations

from minfer_kernels.cpu.compiler.kernel import Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.kernels.parts.group_products import group_products
from minfer_kernels.cpu.kernels.parts.panels import panel_tokens
from minfer_kernels.cpu.kernels.parts.rows import ceil_div, first_item
from minfer_kernels.cpu.simd import load_i32, smaller
from minfer_kernels.cpu.weights.layouts import layout_of


@kernel_family
def matmul(fmt: str, rows: int) -> Kernel:
    """The kernel for weights of the format with GGML name `fmt`, in lower case, in groups of `rows`.

    Operands: x, rows of the layout's activation format, `x_stride` bytes apart; w, a `PackedWeight` `[n, k]`;
    out, float32 rows `out_stride` bytes apart; rows_at, the int32 number of rows.
    """
    layout = layout_of(fmt.upper(), rows)
    block, block_bytes, group_rows = layout.block, layout.block_bytes, rows
    multiply = group_products(layout.format, rows).multiply

    @kernel
    def body(
        x: Ptr, w: Ptr, out: Ptr, rows_at: Ptr, x_stride: Int, out_stride: Int, n: Int, k: Int, tid: Int, n_threads: Int
    ) -> None:
        rows = load_i32(rows_at)
        n_blocks = k // block
        n_groups = ceil_div(n, group_rows)
        first, end = first_item(n_groups, tid, n_threads), first_item(n_groups, tid + 1, n_threads)
        panel = panel_tokens(x_stride)
        for start in range(0, rows, panel):
            stop = smaller(start + panel, rows)
            for g in range(first, end):
                group, at = w + g * n_blocks * block_bytes, out + 4 * group_rows * g
                multiply(group, n_blocks, k, n - group_rows * g, x, x_stride, at, out_stride, start, stop)

    return body
