"""Weights of 32-element blocks against Q8A32 activations: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL.

With dx the activation block's scale and isum the integer sum of its quants, a block adds

    acc = fma(d * dx, float(sums - centre * isum), acc)
    acc = fma(m, dx * float(isum), acc)                    Q4_1, Q5_1 alone: m is the block's minimum

where unsigned quants of Q4_0 and Q5_0 stand for q - centre (8 and 16); Q8_0 and IQ4_NL are signed. The integers are
exact. With |x| <= 127 the products of a block sum to at most 32 * 127 * 255 = 1036320 in magnitude, where signed
weights are biased by 128 and the sum starts at -128 * isum, that is within 520192: below 2 ** 24 all the way, so the
32-bit sums cannot overflow and the conversion to float32 is exact too.
"""

from __future__ import annotations

from typing import Any

from minfer_ir.formats.iq import IQ4_LEVELS
from minfer_kernels.cpu.decoders.protocol import Decoder, Step
from minfer_kernels.cpu.decoders.steps import identity, nothing, zeros
from minfer_kernels.cpu.simd import Op, fma, inline, load_f32, load_i32, to_f32
from minfer_kernels.cpu.simd.runs import DOTS, RUNS
from minfer_kernels.cpu.simd.widths import LANES
from minfer_kernels.cpu.weights.layouts import WeightLayout

CENTRES = {"Q4_0": 8, "Q5_0": 16}
"""What unsigned quants are measured from."""

SIGNED = ("Q8_0", "IQ4_NL")

# Quads whose products are summed in 16 bits: nibbles 2 * 15 * 127 * 8 = 30480, five bits 2 * 31 * 127 * 4 = 31496,
# signed bytes 2 * 128 * 127 = 32512.
_QUADS_PER_SUM = {"Q4_0": 8, "Q4_1": 8, "Q5_0": 4, "Q5_1": 4, "Q8_0": 1, "IQ4_NL": 1}


def simple_decoder(layout: WeightLayout) -> Decoder:
    """The decoder of a 32-element weight format."""
    fmt, dots = layout.format, DOTS[layout.rows]
    signed = fmt in SIGNED
    dot = dots.dot(f"dot_{fmt.lower()}_", _QUADS_PER_SUM[fmt], signed)
    start = _start(dots.start(f"start_{fmt.lower()}_", CENTRES.get(fmt, 0), signed))
    load_scales, close = (_with_minimum if layout.has("m") else _scaled)(layout)
    return Decoder(layout, 1, 0, _load(layout), start, dot, nothing, load_scales, zeros(layout.rows), close, identity)


def _load(layout: WeightLayout) -> Step:
    """(block, run) to the block's run."""
    runs = RUNS[layout.rows]
    if layout.has("q1"):
        q4, q1, load_u5 = layout.field("q4").offset, layout.field("q1").offset, runs.u5
        return inline(lambda block, _run: load_u5(block + q4, block + q1))
    load = {"Q8_0": runs.i8, "IQ4_NL": runs.table("load_iq4_run", IQ4_LEVELS.tolist())}.get(layout.format, runs.u4)
    return inline(lambda block, _run: load(block))


def _start(times_centre: Op) -> Step:
    return inline(lambda x, k, b: times_centre(load_i32(x + k + k // 8 + 4 * b)))


def _with_minimum(layout: WeightLayout) -> tuple[Step, Step]:
    d_at, m_at = layout.field("d").offset, layout.field("m").offset
    load_f16, splat, splat_i32 = LANES[layout.rows].load_f16, LANES[layout.rows].splat_f32, LANES[layout.rows].splat_i32

    @inline
    def load_scales(block: Any) -> Any:
        return load_f16(block + d_at), load_f16(block + m_at)

    @inline
    def close(scales: Any, x: Any, k: Any, b: Any, sums: Any, _offsets: Any, acc: Any) -> Any:
        dx = splat(load_f32(x + k + 4 * b))
        acc = fma(scales[0] * dx, to_f32(sums), acc)
        # Converted in every lane: a scalar would cost two instructions more, on the same ports.
        return fma(scales[1], dx * to_f32(splat_i32(load_i32(x + k + k // 8 + 4 * b))), acc)

    return load_scales, close


def _scaled(layout: WeightLayout) -> tuple[Step, Step]:
    d_at = layout.field("d").offset
    load_f16, splat = LANES[layout.rows].load_f16, LANES[layout.rows].splat_f32

    @inline
    def load_scales(block: Any) -> Any:
        return load_f16(block + d_at)

    @inline
    def close(d: Any, x: Any, k: Any, b: Any, sums: Any, _offsets: Any, acc: Any) -> Any:
        return fma(d * splat(load_f32(x + k + 4 * b)), to_f32(sums), acc)

    return load_scales, close
