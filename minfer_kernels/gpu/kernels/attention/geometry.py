"""Shapes of the register tiles that attention over one block of cells works in."""

from __future__ import annotations

import triton
import triton.language as tl

from minfer_kernels.gpu.kernels.cells import F32, Q8_0


@triton.constexpr_function
def rows_of(group):
    """Query heads of a KV head, padded: a matrix instruction takes eight of them twice over."""
    return max(8, triton.next_power_of_2(group))


@triton.constexpr_function
def scored_rows_of(group, layout, matrix):
    """Rows that scores are computed for: with single dot products there is no need to pad."""
    return triton.next_power_of_2(group) if layout == Q8_0 and not matrix else rows_of(group)


@triton.constexpr_function
def tile_of(group, layout):
    """Rows of the left operand: float32 goes in as two float16, one under the other."""
    return rows_of(group) if layout == F32 else 2 * rows_of(group)


@triton.constexpr_function
def columns_of(head_dim, layout):
    """Elements of a head that one register tile holds: a block of packed cells, or all, padded."""
    return 32 if layout == Q8_0 else max(16, triton.next_power_of_2(head_dim))


@triton.constexpr_function
def pieces_of(head_dim, layout):
    """Register tiles that make up a head."""
    return head_dim // 32 if layout == Q8_0 else 1


@triton.jit
def halves(x):
    """[N, M] float32 to [2 N, M] float16: the values rounded, then what rounding left of them."""
    twice = tl.broadcast_to(x[None, :, :], [2, x.shape[0], x.shape[1]])
    high = twice.to(tl.float16)
    low = (twice - high.to(tl.float32)).to(tl.float16)
    second = tl.arange(0, 2)[:, None, None] == 1
    return tl.reshape(tl.where(second, low, high), [2 * x.shape[0], x.shape[1]])


@triton.jit
def repeated(x, TIMES: tl.constexpr):
    """[N] or [N, M], TIMES one under the other."""
    if len(x.shape) == 1:
        return tl.reshape(tl.broadcast_to(x[None, :], [TIMES, x.shape[0]]), [TIMES * x.shape[0]])
    else:
        tall = tl.broadcast_to(x[None, :, :], [TIMES, x.shape[0], x.shape[1]])
        return tl.reshape(tall, [TIMES * x.shape[0], x.shape[1]])


@triton.jit
def folded(x, ROWS: tl.constexpr):
    """[TIMES ROWS, M] to [ROWS, M]: sums of what lies one under the other."""
    if x.shape[0] == ROWS:
        return x
    else:
        return tl.sum(tl.reshape(x, [x.shape[0] // ROWS, ROWS, x.shape[1]]), 0)
