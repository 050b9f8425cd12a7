"""Weights of 32-element blocks against Q8A32 activations: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL.

With dx the activation block's scale and s its sum (dx times the sum of its quants), a block adds

    acc = fma(d * dx, float(sums), acc)
    acc = fma(m, s, acc)              Q4_1, Q5_1: m is the block's minimum
    acc = fma(d, -centre * s, acc)    Q4_0, Q5_0: unsigned quants, value = d * (q - centre)

The integer sum is exact and below 2 ** 24, so its conversion is exact too. Q8_0 and IQ4_NL are signed.
"""

from __future__ import annotations

from typing import Any

from minfer_ir.formats.iq import IQ4_LEVELS
from minfer_kernels.cpu.decoders.protocol import Decoder, Step
from minfer_kernels.cpu.decoders.steps import identity, no_offsets, zero
from minfer_kernels.cpu.simd import f32, fma, inline, load_f16x8, load_f32, splat_f32x8, to_f32
from minfer_kernels.cpu.simd.ints import (
    dot_of,
    load_i8_run,
    load_u4_run,
    load_u5_run,
    ones_i16x16,
    table_run,
)
from minfer_kernels.cpu.weights.layouts import layout_of

# Sums of products in 16 bits: 8 quads of nibbles 2 * 15 * 127 * 8 = 30480, 4 of five bits 2 * 31 * 127 * 4 = 31496,
# 1 of signed bytes 2 * 128 * 127 = 32512.
_dot_u4 = dot_of("dot_u4", 8, signed=False)
_dot_u5 = dot_of("dot_u5", 4, signed=False)
_dot_i8 = dot_of("dot_i8", 1, signed=True)
_load_iq4_run = table_run("load_iq4_run", IQ4_LEVELS.tolist())


def simple_decoder(fmt: str) -> Decoder:
    """The decoder of a 32-element weight format, by GGML name."""
    layout = layout_of(fmt)
    load, dot = _runs(fmt)
    close = _close_with_minimum(fmt) if layout.has("m") else _close_centred(fmt, {"Q4_0": 8, "Q5_0": 16}.get(fmt, 0))
    return Decoder(layout, 1, 0, load, dot, no_offsets, zero, close, identity)


def _runs(fmt: str) -> tuple[Step, Step]:
    """How to load the block's run, and its dot product."""
    layout = layout_of(fmt)
    if layout.has("q1"):
        q4, q1 = layout.field("q4").offset, layout.field("q1").offset
        return inline(lambda block, _run: load_u5_run(block + q4, block + q1)), _unscaled(_dot_u5)
    if layout.has("q8"):
        return inline(lambda block, _run: load_i8_run(block)), _unscaled(_dot_i8)
    if fmt == "IQ4_NL":
        return inline(lambda block, _run: _load_iq4_run(block)), _unscaled(_dot_i8)
    return inline(lambda block, _run: load_u4_run(block)), _unscaled(_dot_u4)


def _unscaled(dot: Any) -> Step:
    return inline(lambda quants, x: dot(quants, x, ones_i16x16(), ones_i16x16()))


def _close_with_minimum(fmt: str) -> Step:
    d_at, m_at = layout_of(fmt).field("d").offset, layout_of(fmt).field("m").offset

    @inline
    def close(block: Any, b: Any, x: Any, k: Any, sums: Any, _offsets: Any, acc: Any) -> Any:
        scale = load_f16x8(block + d_at) * splat_f32x8(load_f32(x + k + 4 * b))
        acc = fma(scale, to_f32(sums), acc)
        return fma(load_f16x8(block + m_at), splat_f32x8(load_f32(x + k + k // 8 + 4 * b)), acc)

    return close


def _close_centred(fmt: str, centre: int) -> Step:
    d_at = layout_of(fmt).field("d").offset
    offset = f32(-centre)

    @inline
    def close(block: Any, b: Any, x: Any, k: Any, sums: Any, _offsets: Any, acc: Any) -> Any:
        d = load_f16x8(block + d_at)
        acc = fma(d * splat_f32x8(load_f32(x + k + 4 * b)), to_f32(sums), acc)
        if centre == 0:
            return acc
        return fma(d, splat_f32x8(offset * load_f32(x + k + k // 8 + 4 * b)), acc)

    return close
