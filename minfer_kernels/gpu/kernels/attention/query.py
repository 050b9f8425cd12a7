"""A row's query heads as scores take them."""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.kernels.attention.geometry import columns_of, halves, pieces_of, scored_rows_of
from minfer_kernels.gpu.kernels.cells import F32, Q8_0
from minfer_kernels.gpu.kernels.quantize import quantized

# Constants reach a kernel as Python values.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false, reportAssignmentType=false


@triton.jit
def load_query(heads, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, LAYOUT: tl.constexpr, MATRIX: tl.constexpr):
    """The GROUP heads at `heads`, `[GROUP, HEAD_DIM]` float32, as a tuple.

    Float32 cells: the heads. Float16 cells: their halves. Packed cells: of each block of 32 elements the quants (int8
    `[rows, 32]`, or `[rows, 8]` words of four) and the scales `[rows]`.
    """
    g = tl.arange(0, scored_rows_of(GROUP, LAYOUT, MATRIX))
    if LAYOUT == Q8_0:
        query = ()
        for b in tl.static_range(pieces_of(HEAD_DIM, LAYOUT)):
            d = b * 32 + tl.arange(0, 32)
            x = tl.load(heads + g[:, None] * HEAD_DIM + d[None, :], mask=(g < GROUP)[:, None], other=0.0)
            quants, scales = rounded_query(x)
            query = query + (quants.to(tl.int8) if MATRIX else _words(quants), scales)
    else:
        d = tl.arange(0, columns_of(HEAD_DIM, LAYOUT))
        inside = (g < GROUP)[:, None] & (d < HEAD_DIM)[None, :]
        x = tl.load(heads + g[:, None] * HEAD_DIM + d[None, :], mask=inside, other=0.0)
        query = (x if LAYOUT == F32 else halves(x),)
    return query


@triton.jit
def _words(quants):
    """[N, 32] to [N, 8]: four in each int32, the first in the lowest byte."""
    bytes4 = (tl.reshape(quants, [quants.shape[0], 8, 4]) & 255) << (tl.arange(0, 4) * 8)[None, None, :]
    return tl.sum(bytes4, 2)


@triton.jit
def rounded_query(x):
    """`[N, 32]` float32 to int32 quants `[N, 32]` and float32 scales `[N]`, with the bits of Q8A32."""
    quants, scales = quantized(tl.reshape(x, [x.shape[0], 1, 32]))
    return tl.reshape(quants, [x.shape[0], 32]), scales.to(tl.float32, bitcast=True)
