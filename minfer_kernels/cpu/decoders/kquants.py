"""K-quants against Q8A256 activations: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.

Everything inside a 256-element block stays integer: `sums` are products of quants times the small scales of
their sub-blocks, `offsets` the small minimums (or, again, scales) times the activation's sums of 16. Then

    acc = fma(d * dx, float(sums), acc);  acc = fma(dmin * dx, float(-offsets), acc)    Q2_K, Q4_K, Q5_K
    acc = fma(d * dx, float(sums - centre * offsets), acc)                              Q3_K, Q6_K

where unsigned quants stand for q - centre. With |x| <= 127 (`MAGNITUDES` restates the bounds for the tests):

    format  q   scale  16-bit sums of               sums in 32 bits              centre * offsets
    Q2_K     3     15  4 quads    3 * 254 * 4       256 * 127 * 3 * 15           15 * 127 * 256
    Q3_K     7     32  4 quads    7 * 254 * 4       256 * 127 * 7 * 32           4 * 32 * 127 * 256
    Q4_K    15     63  8 quads   15 * 254 * 8       256 * 127 * 15 * 63          63 * 127 * 256
    Q5_K    31     63  4 quads   31 * 254 * 4       256 * 127 * 31 * 63          63 * 127 * 256
    Q6_K    63    128  2 quads   63 * 254 * 2       256 * 127 * 63 * 128         32 * 128 * 127 * 256

The largest 16-bit sum is 32004, the largest 32-bit sum 262e6 + 133e6: both fit.
"""

from __future__ import annotations

from typing import Any

from minfer_kernels.cpu.decoders.protocol import Decoder, Step
from minfer_kernels.cpu.decoders.steps import identity, zero
from minfer_kernels.cpu.simd import fma, inline, load_f16x8, load_f32, splat_f32x8, to_f32
from minfer_kernels.cpu.simd.ints import (
    dot_of,
    even_doubled,
    high_nibbles,
    load_i8x16,
    load_u2_run,
    load_u3_run,
    load_u4_run,
    load_u5_run,
    load_u6_run,
    load_u8x8_doubled,
    load_u8x16,
    low_nibbles,
    odd_doubled,
    times_power_of_two,
    zero_i32x8,
)
from minfer_kernels.cpu.weights.layouts import WeightLayout, layout_of

QUADS_PER_SUM = {"Q2_K": 4, "Q3_K": 4, "Q4_K": 8, "Q5_K": 4, "Q6_K": 2}
"""Quads whose products are summed in 16 bits."""
MAGNITUDES = {"Q2_K": (3, 15), "Q3_K": (7, 32), "Q4_K": (15, 63), "Q5_K": (31, 63), "Q6_K": (63, 128)}
"""Largest quant as stored (unsigned) and largest magnitude of a small scale."""
CENTRE_BITS = {"Q3_K": 2, "Q6_K": 5}
"""log2 of the centre of the formats without minimums."""

_LOAD_PAIRS = {"u8": load_u8x16, "i8": load_i8x16}


def kquant_decoder(fmt: str) -> Decoder:
    """The decoder of a K-quant format, by GGML name."""
    layout = layout_of(fmt)
    dot = dot_of(f"dot_{fmt.lower()}", QUADS_PER_SUM[fmt], signed=False)
    close = _close_centred(fmt) if fmt in CENTRE_BITS else _close_with_minimum(fmt)
    return Decoder(layout, 8, 8, _load(layout), _scaled(dot), _offsets(layout), zero, close, identity)


def _scaled(dot: Any) -> Step:
    return inline(lambda weights, x: dot(weights[0], x, weights[1], weights[2]))


def _load(layout: WeightLayout) -> Step:
    """(block, run) to the run's quants and the scales of its first and second 16 elements."""
    quants, scales_at = _quants(layout), layout.field("scales").offset
    if layout.has("mins"):

        @inline
        def load_one_scale(block: Any, run: Any) -> Any:
            scale = load_u8x8_doubled(block + scales_at + 8 * run)
            return quants(block, run), scale, scale

        return load_one_scale
    pairs = _scale_pairs(layout)

    @inline
    def load_two_scales(block: Any, run: Any) -> Any:
        scales = pairs(block, run)
        return quants(block, run), even_doubled(scales), odd_doubled(scales)

    return load_two_scales


def _quants(layout: WeightLayout) -> Step:
    """(block, run) to unsigned quants."""
    planes = {field.name: field.offset for field in layout.fields}
    q1, q2, q4 = planes.get("q1", 0), planes.get("q2", 0), planes.get("q4", 0)
    return {
        "Q2_K": inline(lambda block, run: load_u2_run(block + q2 + 64 * run)),
        "Q3_K": inline(lambda block, run: load_u3_run(block + q2 + 64 * run, block + q1 + 32 * run)),
        "Q4_K": inline(lambda block, run: load_u4_run(block + q4 + 128 * run)),
        "Q5_K": inline(lambda block, run: load_u5_run(block + q4 + 128 * run, block + q1 + 32 * run)),
        "Q6_K": inline(lambda block, run: load_u6_run(block + q4 + 128 * run, block + q2 + 64 * run)),
    }[layout.format]


def _scale_pairs(layout: WeightLayout) -> Step:
    """(block, run) to the scales of the run's two sub-blocks of 16, beside each other for every row."""
    scales_at, load_pairs = layout.field("scales").offset, _LOAD_PAIRS[layout.field("scales").kind]
    if layout.format == "Q2_K":
        return inline(lambda block, run: low_nibbles(load_pairs(block + scales_at + 16 * run)))
    return inline(lambda block, run: load_pairs(block + scales_at + 16 * run))


def _offsets(layout: WeightLayout) -> Step:
    """(block, run) to what multiplies the run's two activation sums."""
    scales_at = layout.field("scales").offset
    if layout.has("mins"):
        mins_at = layout.field("mins").offset
        return inline(lambda block, run: load_u8x8_doubled(block + mins_at + 8 * run))
    if layout.format == "Q2_K":
        return inline(lambda block, run: high_nibbles(load_u8x16(block + scales_at + 16 * run)))
    return _scale_pairs(layout)


def _close_with_minimum(fmt: str) -> Step:
    d_at, dmin_at = layout_of(fmt).field("d").offset, layout_of(fmt).field("dmin").offset

    @inline
    def close(block: Any, b: Any, x: Any, k: Any, sums: Any, offsets: Any, acc: Any) -> Any:
        dx = splat_f32x8(load_f32(x + k + 4 * b))
        acc = fma(load_f16x8(block + d_at) * dx, to_f32(sums), acc)
        return fma(load_f16x8(block + dmin_at) * dx, to_f32(zero_i32x8() - offsets), acc)

    return close


def _close_centred(fmt: str) -> Step:
    d_at, centre_bits = layout_of(fmt).field("d").offset, CENTRE_BITS[fmt]

    @inline
    def close(block: Any, b: Any, x: Any, k: Any, sums: Any, offsets: Any, acc: Any) -> Any:
        scale = load_f16x8(block + d_at) * splat_f32x8(load_f32(x + k + 4 * b))
        return fma(scale, to_f32(sums - times_power_of_two(offsets, centre_bits)), acc)

    return close
