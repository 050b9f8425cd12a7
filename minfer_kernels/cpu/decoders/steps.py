"""Steps that several decoders share."""

from __future__ import annotations

from typing import Any

from minfer_kernels.cpu.simd import f32, inline, load_f16x8_partial, splat_f32x8
from minfer_kernels.cpu.simd.ints import ones_i16x16, splat_first


@inline
def zero() -> Any:
    """The empty sum."""
    return splat_f32x8(f32(0.0))


@inline
def identity(state: Any) -> Any:
    """Finish a state that is the result."""
    return state


@inline
def no_offsets(_block: Any, _run: Any) -> Any:
    """Offsets of a format that has none; never called at run time."""
    return ones_i16x16()


@inline
def load_nothing(_block: Any, _run: Any) -> Any:
    """Weights of a format without runs; never called at run time."""
    return ones_i16x16()


@inline
def splat_f16(p: Any) -> Any:
    """The float16 at p in every lane, widened."""
    return splat_first(load_f16x8_partial(p, 1))
