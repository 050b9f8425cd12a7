"""Steps that several decoders share."""

from __future__ import annotations

from typing import Any

from minfer_kernels.cpu.decoders.protocol import Step
from minfer_kernels.cpu.simd import f32, inline, load_f16x8_partial
from minfer_kernels.cpu.simd.ints import splat_first
from minfer_kernels.cpu.simd.widths import LANES


def zeros(rows: int) -> Step:
    """() to float32 zeros."""
    splat = LANES[rows].splat_f32
    return inline(lambda: splat(f32(0.0)))


def int_zeros(rows: int) -> Step:
    """() to int32 zeros."""
    splat = LANES[rows].splat_i32
    return inline(lambda: splat(0))


@inline
def identity(state: Any) -> Any:
    """Finish a state that is the result."""
    return state


@inline
def nothing(*_operands: Any) -> Any:
    """A step that a format without runs, or without offsets, has no use for."""
    return 0


@inline
def splat_f16(p: Any) -> Any:
    """The float16 at p in every lane, widened."""
    return splat_first(load_f16x8_partial(p, 1))
