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
from minfer_kernels.cpu.decoders.steps import identity, int_zeros, zeros
from minfer_kernels.cpu.simd import fma, inline, load_f32, to_f32
from minfer_kernels.cpu.simd.ints import times_power_of_two
from minfer_kernels.cpu.simd.runs import DOTS, RUNS
from minfer_kernels.cpu.simd.widths import LANES
from minfer_kernels.cpu.weights.layouts import WeightLayout

QUADS_PER_SUM = {"Q2_K": 4, "Q3_K": 4, "Q4_K": 8, "Q5_K": 4, "Q6_K": 2}
"""Quads whose products are summed in 16 bits."""
MAGNITUDES = {"Q2_K": (3, 15), "Q3_K": (7, 32), "Q4_K": (15, 63), "Q5_K": (31, 63), "Q6_K": (63, 128)}
"""Largest quant as stored (unsigned) and largest magnitude of a small scale."""
CENTRE_BITS = {"Q3_K": 2, "Q6_K": 5}
"""log2 of the centre of the formats without minimums."""


def kquant_decoder(layout: WeightLayout) -> Decoder:
    """The decoder of a K-quant format."""
    fmt, none = layout.format, int_zeros(layout.rows)
    scales_per_run, quant = (1 if layout.has("mins") else 2), MAGNITUDES[fmt][0]
    dot = DOTS[layout.rows].scaled_dot(f"dot_{fmt.lower()}_", QUADS_PER_SUM[fmt], scales_per_run, 16 * 127 * quant)
    load_scales, close = (_centred if fmt in CENTRE_BITS else _with_minimum)(layout)

    @inline
    def start(_x: Any, _k: Any, _b: Any) -> Any:
        return none()

    return Decoder(
        layout, 8, 8, _load(layout), start, inline(lambda sums, weights, x: dot(sums, weights[0], x, weights[1])),
        _offsets(layout), load_scales, zeros(layout.rows), close, identity,
    )  # fmt: skip


def _load(layout: WeightLayout) -> Step:
    """(block, run) to the run's quants and the scales of its first and second 16 elements."""
    quants, scales = _quants(layout), _small_scales(layout)
    return inline(lambda block, run: (quants(block, run), scales(block, run)))


def _quants(layout: WeightLayout) -> Step:
    """(block, run) to unsigned quants."""
    runs = RUNS[layout.rows]
    planes = {field.name: (field.offset, field.nbytes // 8) for field in layout.fields}
    load = {"Q2_K": runs.u2, "Q3_K": runs.u3, "Q4_K": runs.u4, "Q5_K": runs.u5, "Q6_K": runs.u6}[layout.format]
    (low_at, low_run), *high = (planes[name] for name in ("q4", "q2", "q1") if name in planes)
    if not high:
        return inline(lambda block, run: load(block + low_at + low_run * run))
    high_at, high_run = high[0]
    return inline(lambda block, run: load(block + low_at + low_run * run, block + high_at + high_run * run))


def _small_scales(layout: WeightLayout) -> Step:
    """(block, run) to the scales of the run's two sub-blocks of 16, beside each other for every row."""
    runs, scales, unit = RUNS[layout.rows], layout.field("scales").offset, layout.field("scales").unit_bytes
    if layout.format == "Q2_K":
        load_both, low_nibbles = runs.u8_pairs, runs.low_nibbles
        return inline(lambda block, run: low_nibbles(load_both(block + scales + unit * run)))
    load = runs.u8_doubled if layout.has("mins") else runs.i8_pairs
    return inline(lambda block, run: load(block + scales + unit * run))


def _offsets(layout: WeightLayout) -> Step:
    """(block, run) to what multiplies the run's two activation sums."""
    runs = RUNS[layout.rows]
    if layout.has("mins"):
        mins, unit, load = layout.field("mins").offset, layout.field("mins").unit_bytes, runs.u8_doubled
        return inline(lambda block, run: load(block + mins + unit * run))
    if layout.format == "Q2_K":
        scales, unit = layout.field("scales").offset, layout.field("scales").unit_bytes
        load_both, high_nibbles = runs.u8_pairs, runs.high_nibbles
        return inline(lambda block, run: high_nibbles(load_both(block + scales + unit * run)))
    return _small_scales(layout)


def _with_minimum(layout: WeightLayout) -> tuple[Step, Step]:
    d_at, dmin_at = layout.field("d").offset, layout.field("dmin").offset
    load_f16, splat, zero = LANES[layout.rows].load_f16, LANES[layout.rows].splat_f32, int_zeros(layout.rows)

    @inline
    def load_scales(block: Any) -> Any:
        return load_f16(block + d_at), load_f16(block + dmin_at)

    @inline
    def close(scales: Any, x: Any, k: Any, b: Any, sums: Any, offsets: Any, acc: Any) -> Any:
        dx = splat(load_f32(x + k + 4 * b))
        acc = fma(scales[0] * dx, to_f32(sums), acc)
        return fma(scales[1] * dx, to_f32(zero() - offsets), acc)

    return load_scales, close


def _centred(layout: WeightLayout) -> tuple[Step, Step]:
    d_at, centre_bits = layout.field("d").offset, CENTRE_BITS[layout.format]
    load_f16, splat = LANES[layout.rows].load_f16, LANES[layout.rows].splat_f32

    @inline
    def load_scales(block: Any) -> Any:
        return load_f16(block + d_at)

    @inline
    def close(d: Any, x: Any, k: Any, b: Any, sums: Any, offsets: Any, acc: Any) -> Any:
        scale = d * splat(load_f32(x + k + 4 * b))
        return fma(scale, to_f32(sums - times_power_of_two(offsets, centre_bits)), acc)

    return load_scales, close
