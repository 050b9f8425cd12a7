"""Gathering rows of a table and decoding them: `get_rows.get_rows[q8_0]` and so on, one kernel per format.

The table is what a GGUF file holds, unpacked: an embedding is read row by row, not in groups. With `[f32]`
it also selects rows of activations. Threads share rows, and pieces of a row.
"""

from __future__ import annotations

from minfer_kernels.cpu.compiler.kernel import Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.decoders.rows import row_decoder
from minfer_kernels.cpu.kernels.parts.rows import COLUMNS, ceil_div, first_item
from minfer_kernels.cpu.simd import load_i32, smaller, store_f32x8, store_f32x8_partial


@kernel_family
def get_rows(fmt: str) -> Kernel:
    """The kernel for tables of the format with GGML name `fmt`, in lower case.

    Operands: table, rows of `width` elements `table_stride` bytes apart; ids, int32 row numbers; out, float32
    rows `out_stride` bytes apart; rows_at, the int32 number of ids.
    """
    decoder = row_decoder(fmt.upper())
    eight, one = decoder.eight, decoder.one or decoder.eight

    @kernel
    def body(
        table: Ptr, ids: Ptr, out: Ptr, rows_at: Ptr, width: Int, table_stride: Int, out_stride: Int,
        tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        pieces = ceil_div(width, COLUMNS)
        items = load_i32(rows_at) * pieces
        for item in range(first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)):
            t, start = item // pieces, item % pieces * COLUMNS
            stop = smaller(start + COLUMNS, width)
            row, to = table + load_i32(ids + 4 * t) * table_stride, out + t * out_stride
            for i in range(start, stop - 7, 8):
                store_f32x8(to + 4 * i, eight(row, i))
            for i in range(stop - (stop - start) % 8, stop):
                store_f32x8_partial(to + 4 * i, 1, one(row, i))

    return body
