"""Gathering rows of a table and decoding them: `get_rows.get_rows[q8_0]` and so on, one kernel per format.

The table is what a GGUF file holds: an embedding is read row by row, not in groups. With `[f32]` it also selects
rows of activations. An embedding that is the output head too is kept packed alone, as that reads it all in every
step: `get_rows.packed[q8_0,8]` takes its few rows out of their groups first. Threads share rows, and pieces of a row.
"""

from __future__ import annotations

from minfer_ir.formats import FORMATS
from minfer_kernels.cpu.compiler.kernel import Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.decoders.rows import row_decoder
from minfer_kernels.cpu.kernels.parts.pack_terms import unpack_row
from minfer_kernels.cpu.kernels.parts.rows import COLUMNS, ceil_div, first_item
from minfer_kernels.cpu.simd import load_i32, smaller, store_f32x8, store_f32x8_partial
from minfer_kernels.cpu.weights.layouts import layout_of


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


@kernel_family
def packed(fmt: str, rows: int) -> Kernel:
    """The kernel for tables of the format with GGML name `fmt`, in lower case, packed in groups of `rows`.

    Operands as of `get_rows`, and: table, the first group; program, the `terms` of `unpack_program`; scratch,
    `scratch_stride` bytes a thread, which hold a row of the file in whole words of eight bytes.
    """
    layout = layout_of(fmt.upper(), rows)
    decoder = row_decoder(layout.format)
    eight, one = decoder.eight, decoder.one or decoder.eight
    block, block_bytes, source_bytes = layout.block, layout.block_bytes, FORMATS[layout.format].block_bytes

    @kernel
    def body(
        table: Ptr, program: Ptr, terms: Int, scratch: Ptr, scratch_stride: Int, ids: Ptr, out: Ptr, rows_at: Ptr,
        width: Int, out_stride: Int, tid: Int, n_threads: Int,
    ) -> None:  # fmt: skip
        pieces, n_blocks = ceil_div(width, COLUMNS), width // block
        items = load_i32(rows_at) * pieces
        row, held = scratch + tid * scratch_stride, -1
        for item in range(first_item(items, tid, n_threads), first_item(items, tid + 1, n_threads)):
            t, start = item // pieces, item % pieces * COLUMNS
            if t != held:
                held = t
                number = load_i32(ids + 4 * t)
                group = table + number // rows * n_blocks * block_bytes
                unpack_row(program, terms, group, number % rows, block_bytes, row, source_bytes, n_blocks)
            stop, to = smaller(start + COLUMNS, width), out + t * out_stride
            for i in range(start, stop - 7, 8):
                store_f32x8(to + 4 * i, eight(row, i))
            for i in range(stop - (stop - start) % 8, stop):
                store_f32x8_partial(to + 4 * i, 1, one(row, i))

    return body
