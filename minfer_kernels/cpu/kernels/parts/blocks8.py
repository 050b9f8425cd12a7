"""Quantizing eight-lane vectors to 8-bit activation blocks, to the bits of `minfer_ir.formats.activation`."""

from __future__ import annotations

from typing import Any

import numpy as np

from minfer_kernels.cpu.simd import (
    f32,
    f32_of_bits,
    i64,
    inline,
    load_f32x8,
    magnitude_bits,
    max_lanes_i32,
    maximum_i32,
    round_even,
    splat_f32x8,
    splat_i32x8,
    store_f32,
    store_i8x8,
    store_i16,
    store_i32,
    sum_lanes_i32,
    to_i32,
)

SMALLEST_AMAX = np.float32(1e-36)
INFINITY_BITS = 0x7F800000
NAN_BITS = 0x7FC00000


@inline
def scale_of(amax: Any) -> Any:
    """d = amax / 127, or 0 for a block that counts as zeros."""
    return f32(0.0) if amax < SMALLEST_AMAX else amax / f32(127.0)


@inline
def inverse_scale_of(amax: Any) -> Any:
    """127 / amax, or 0 for a block that counts as zeros."""
    return f32(0.0) if amax < SMALLEST_AMAX else f32(127.0) / amax


@inline
def quantized_lanes(x: Any, inverse: Any) -> Any:
    """x * inverse rounded to nearest, halves to even, as int32."""
    return to_i32(round_even(x * inverse))


@inline
def write_block32(v0: Any, v1: Any, v2: Any, v3: Any, quants: int, scale: int, quant_sum: int) -> None:
    """One Q8A32 block: 32 int8, float32 d, int32 sum of the quants."""
    largest = maximum_i32(
        maximum_i32(magnitude_bits(v0), magnitude_bits(v1)), maximum_i32(magnitude_bits(v2), magnitude_bits(v3))
    )
    amax_bits = max_lanes_i32(largest)
    if amax_bits >= INFINITY_BITS:
        zeros = splat_i32x8(0)
        for i in range(0, 32, 8):
            store_i8x8(quants + i, zeros)
        store_f32(scale, f32_of_bits(NAN_BITS))
        store_i32(quant_sum, i64(0))
    else:
        amax = f32_of_bits(amax_bits)
        inverse = splat_f32x8(inverse_scale_of(amax))
        q0, q1 = quantized_lanes(v0, inverse), quantized_lanes(v1, inverse)
        q2, q3 = quantized_lanes(v2, inverse), quantized_lanes(v3, inverse)
        store_i8x8(quants, q0)
        store_i8x8(quants + 8, q1)
        store_i8x8(quants + 16, q2)
        store_i8x8(quants + 24, q3)
        store_f32(scale, scale_of(amax))
        store_i32(quant_sum, sum_lanes_i32((q0 + q1) + (q2 + q3)))


@inline
def write_block256(values: int, quants: int, scale: int, sums: int) -> None:
    """One Q8A256 block from 256 float32 in memory: 256 int8, float32 d, 16 int16 sums of 16 quants."""
    largest = splat_i32x8(0)
    for i in range(0, 256, 8):
        largest = maximum_i32(largest, magnitude_bits(load_f32x8(values + 4 * i)))
    amax_bits = max_lanes_i32(largest)
    if amax_bits >= INFINITY_BITS:
        zeros = splat_i32x8(0)
        for i in range(0, 256, 8):
            store_i8x8(quants + i, zeros)
        for i in range(16):
            store_i16(sums + 2 * i, i64(0))
        store_f32(scale, f32_of_bits(NAN_BITS))
    else:
        amax = f32_of_bits(amax_bits)
        inverse = splat_f32x8(inverse_scale_of(amax))
        for i in range(16):
            at = values + 64 * i
            q0, q1 = quantized_lanes(load_f32x8(at), inverse), quantized_lanes(load_f32x8(at + 32), inverse)
            store_i8x8(quants + 16 * i, q0)
            store_i8x8(quants + 16 * i + 8, q1)
            store_i16(sums + 2 * i, sum_lanes_i32(q0 + q1))
        store_f32(scale, scale_of(amax))
