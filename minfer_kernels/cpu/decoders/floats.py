"""Weights of whole numbers against float32 activations: F32, F16, BF16.

A row is summed in two chains of fused multiply-adds, over the even and the odd k ascending, added at the end.
The two accumulators change places at every k, so one loop serves any number of columns; the last addition
commutes. Two chains hide half the latency of one, and with four tokens fill the eight that the machine has.
"""

from __future__ import annotations

from typing import Any

from minfer_kernels.cpu.decoders.protocol import Decoder
from minfer_kernels.cpu.decoders.steps import load_nothing, no_offsets, zero
from minfer_kernels.cpu.simd import (
    fma,
    inline,
    load_bf16x8,
    load_f16x8,
    load_f32,
    load_f32x8,
    splat_f32x8,
)
from minfer_kernels.cpu.simd.ints import zero_i32x8
from minfer_kernels.cpu.weights.layouts import layout_of

_LOADS = {"F32": load_f32x8, "F16": load_f16x8, "BF16": load_bf16x8}


@inline
def _begin() -> Any:
    return zero(), zero()


@inline
def _finish(state: Any) -> Any:
    return state[0] + state[1]


@inline
def _no_dot(_weights: Any, _x: Any) -> Any:
    return zero_i32x8()


def float_decoder(fmt: str) -> Decoder:
    """The decoder of an unquantized weight format, by GGML name."""
    widened = _LOADS[fmt]

    @inline
    def close(block: Any, b: Any, x: Any, _k: Any, _sums: Any, _offsets: Any, state: Any) -> Any:
        return state[1], fma(widened(block), splat_f32x8(load_f32(x + 4 * b)), state[0])

    return Decoder(layout_of(fmt), 0, 0, load_nothing, _no_dot, no_offsets, _begin, close, _finish)
