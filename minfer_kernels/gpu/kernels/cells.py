"""KV cells as kernels read and write them: the one place where their addresses are formed.

A region is bytes; a cell is a row of it, `cell_bytes` after the one before, in one of three layouts. F32 and F16 are
the elements. Q8_0 is `width` int8 quants, then `width` / 32 float16 scales, then zeros (`minfer_ir.formats.cells`).
Offsets into a region have 64 bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.kernels.lanes import rounded_away

F32, F16, Q8_0 = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
LAYOUTS = {"f32": 0, "f16": 1, "q8_0": 2}
"""The compile-time layout of each cell type."""
_MAGNITUDE = tl.constexpr(0x7FFFFFFF)
_INFINITY = tl.constexpr(0x7F800000)
_NAN_F16 = tl.constexpr(0x7E00)


@triton.jit
def cell_row(region, cell, cell_bytes):
    """Addresses (bytes) of the rows of cells: `region` *u8, `cell` integers of any shape."""
    return region + tl.cast(cell, tl.int64) * cell_bytes


@triton.jit
def load_elements(row, at, width, inside, LAYOUT: tl.constexpr):
    """Elements `at` of `row` as float32, 0 where not `inside`; the three have one shape, or broadcast to it."""
    if LAYOUT == F32:
        return tl.load(row.to(tl.pointer_type(tl.float32)) + at, mask=inside, other=0.0)
    if LAYOUT == F16:
        return tl.load(row.to(tl.pointer_type(tl.float16)) + at, mask=inside, other=0.0).to(tl.float32)
    quants = tl.load(row.to(tl.pointer_type(tl.int8)) + at, mask=inside, other=0)
    return quants.to(tl.float32) * load_scales(row, at // 32, width, inside)


@triton.jit
def load_words(row, word, inside):
    """Q8_0: the quants of elements 4 word to 4 word + 3 as an int32, the first in the lowest byte."""
    return tl.load(row.to(tl.pointer_type(tl.int32)) + word, mask=inside, other=0)


@triton.jit
def load_quants(row, at, inside):
    """Q8_0: quants `at` as int8, 0 where not `inside`."""
    return tl.load(row.to(tl.pointer_type(tl.int8)) + at, mask=inside, other=0)


@triton.jit
def load_scales(row, block, width, inside):
    """Q8_0: the scales of `block`s of 32 elements as float32."""
    scales = (row + width).to(tl.pointer_type(tl.float16))
    return tl.load(scales + block, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def byte_of(word, number):
    """Signed byte `number` of int32 words, the lowest first, as float32."""
    return ((word << (24 - 8 * number)) >> 24).to(tl.float32)


@triton.jit
def load_four(row, word, width, inside, LAYOUT: tl.constexpr):
    """Elements 4 word, 4 word + 1, ... 4 word + 3 of `row` as four float32 tensors, 0 where not `inside`.

    `row`, `word` and `inside` have one rank and broadcast to one shape.
    """
    if LAYOUT == Q8_0:
        quants = load_words(row, word, inside)
        scale = load_scales(row, word // 8, width, inside)
        a, b = byte_of(quants, 0) * scale, byte_of(quants, 1) * scale
        return a, b, byte_of(quants, 2) * scale, byte_of(quants, 3) * scale
    if LAYOUT == F32:
        return _four_floats(row.to(tl.pointer_type(tl.float32)), word, inside)
    return _four_floats(row.to(tl.pointer_type(tl.float16)), word, inside)


@triton.jit
def _four_floats(row, word, inside):
    # Two and two, so that what a thread loads side by side splits without a move.
    four = tl.arange(0, 2)[:, None] * 2 + tl.arange(0, 2)[None, :]
    mask = tl.expand_dims(tl.expand_dims(inside, -1), -1)
    at = tl.expand_dims(tl.expand_dims(row + word * 4, -1), -1) + four
    even, odd = tl.split(tl.load(at, mask=mask, other=0.0).to(tl.float32))
    a, c = tl.split(even)
    b, d = tl.split(odd)
    return a, b, c, d


@triton.jit
def store_blocks(row, block, values, width, cell_bytes, LAYOUT: tl.constexpr):
    """Blocks `block` `[B]` of 32 elements of one row: `values` `[B, 32]` float32, those from `width` on left out.

    Float16 rounds half to even and overflows to infinity. Q8_0 gives the bits of `minfer_ir.formats.cells`; whoever
    stores the row's last block fills the padding behind the scales.
    """
    at = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    inside = at < width
    if LAYOUT == F32:
        tl.store(row.to(tl.pointer_type(tl.float32)) + at, values, mask=inside)
    elif LAYOUT == F16:
        tl.store(row.to(tl.pointer_type(tl.float16)) + at, values.to(tl.float16), mask=inside)
    else:
        quants, scales = quantize_blocks(values)
        blocks = width // 32
        tl.store(row.to(tl.pointer_type(tl.int8)) + at, quants, mask=inside)
        tl.store((row + width).to(tl.pointer_type(tl.int16)) + block, scales, mask=block < blocks)
        # Up to 14 bytes, two at a time; every block names them, the last one writes them.
        half = tl.where(block == blocks - 1, width // 2 + blocks, cell_bytes)[:, None] + tl.arange(0, 8)[None, :]
        zeros = tl.zeros([values.shape[0], 8], tl.int16)
        tl.store(row.to(tl.pointer_type(tl.int16)) + half, zeros, mask=half < cell_bytes // 2)


@triton.jit
def quantize_blocks(values):
    """`[B, 32]` float32 to a Q8_0 cell's quants `[B, 32]` int8 and the bits of its float16 scales `[B]` int16."""
    largest = tl.max(values.to(tl.int32, bitcast=True) & _MAGNITUDE, 1)
    finite = largest < _INFINITY
    d = tl.div_rn(tl.where(finite, largest, 0).to(tl.float32, bitcast=True), 127.0)
    stored = d.to(tl.float16).to(tl.int16, bitcast=True)
    finite = finite & (stored != 0x7C00)
    inverse = tl.div_rn(1.0, tl.where(d > 0, d, 1.0))
    inverse = tl.where(finite & (inverse.to(tl.int32, bitcast=True) < _INFINITY), inverse, 0.0)
    quants = rounded_away(tl.where(finite[:, None], values, 0.0) * inverse[:, None])
    return quants.to(tl.int8), tl.where(finite, stored, _NAN_F16).to(tl.int16)
