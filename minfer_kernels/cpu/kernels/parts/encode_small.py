"""Encoding blocks of 32 that need no search, and floats, to the bytes of `minfer_ir.formats`.

An encoder takes (x, out, count), the addresses of `count` blocks and of their bytes, and returns 0. It returns 1 where
it leaves the bytes to numpy: a value that isn't finite, a scale beyond float16, a minimum of 0 beside a -0.0.
"""

from __future__ import annotations

from typing import Any

from minfer_ir.formats import BF16, F16, Q8_0, format_named
from minfer_ir.formats.blocks import BlockFormat
from minfer_kernels.cpu.kernels.parts.encode_chunks import FLOAT_RUN
from minfer_kernels.cpu.simd import (
    absolute,
    f32,
    f32_of_bits,
    greater,
    inline,
    less,
    load_f32,
    load_f32x16,
    magnitude_bits,
    max_lanes,
    max_lanes_i32,
    maximum,
    maximum_i32,
    minimum,
    select,
    splat_f32x16,
    splat_i32x16,
    store_f16x16,
    store_i8x16,
    store_i16,
    to_f32,
    to_i32,
)
from minfer_kernels.cpu.simd.ints import bit_field, times_power_of_two
from minfer_kernels.cpu.simd.rounding import f16_of_f32, mask_bits, signed_lanes, store_bf16x16
from minfer_kernels.cpu.simd.scalars import bits_of_f32

INFINITY_BITS = 0x7F800000
MAGNITUDE = 0x7FFFFFFF
F16_INFINITY = 0x7C00
LARGEST_BITS = {F16.name: 0x477FEFFF, BF16.name: 0x7F7F7FFF}
"""Of the largest float32 that isn't rounded to infinity."""


@inline
def amax_bits(v0: Any, v1: Any) -> int:
    """The largest magnitude's bits; those of a NaN are above infinity's."""
    return max_lanes_i32(maximum_i32(magnitude_bits(v0), magnitude_bits(v1)))


@inline
def inverse_of(d: Any) -> Any:
    """1 / d, and 0 where that is infinite."""
    inverse = f32(1.0) / d
    return f32(0.0) if bits_of_f32(inverse) & MAGNITUDE >= INFINITY_BITS else inverse


@inline
def store_scale(at: int, d: float) -> int:
    """Store d as float16; 1 when it overflows."""
    bits = f16_of_f32(d)
    store_i16(at, bits)
    return 1 if bits & F16_INFINITY == F16_INFINITY else 0


@inline
def first_extreme(x: int, v0: Any, v1: Any) -> float:
    """The first of 32 elements with the largest magnitude."""
    top, bottom = max_lanes(maximum(v0, v1)), max_lanes(maximum(-v0, -v1))
    if top > bottom:
        return top
    if bottom > top:
        return -bottom
    largest = bits_of_f32(top) & MAGNITUDE
    i = 0
    while bits_of_f32(load_f32(x + 4 * i)) & MAGNITUDE != largest:
        i += 1
    return load_f32(x + 4 * i)


def small_int_encoder(name: str) -> Any:
    """Q4_0, Q4_1, Q5_0, Q5_1."""
    fmt = format_named(name)
    assert isinstance(fmt, BlockFormat)
    fields = fmt.layout.fields or {}
    block_bytes, qs, offset = fmt.block_bytes, fields["qs"][1], "m" in fields
    bits = 5 if "qh" in fields else 4
    qh = fields["qh"][1] if bits == 5 else 0
    largest, centre = (1 << bits) - 1, 1 << (bits - 1)

    @inline
    def store_quants(out: int, v0: Any, v1: Any) -> None:
        zero, top = splat_f32x16(f32(0.0)), splat_f32x16(f32(largest))
        q0, q1 = to_i32(minimum(maximum(v0, zero), top)), to_i32(minimum(maximum(v1, zero), top))
        low0, low1 = bit_field(q0, 0, 15), bit_field(q1, 0, 15)
        store_i8x16(out + qs, low0 + times_power_of_two(low1, 4))
        if bits == 5:
            half = splat_f32x16(f32(15.5))
            store_i16(out + qh, mask_bits(greater(to_f32(q0), half)))
            store_i16(out + qh + 2, mask_bits(greater(to_f32(q1), half)))

    @inline
    def centred(x: int, out: int) -> int:
        v0, v1 = load_f32x16(x), load_f32x16(x + 64)
        if amax_bits(v0, v1) >= INFINITY_BITS:
            return 1
        d = first_extreme(x, v0, v1) / f32(-centre)
        inverse, middle = splat_f32x16(inverse_of(d)), splat_f32x16(f32(centre + 0.5))
        store_quants(out, v0 * inverse + middle, v1 * inverse + middle)
        return store_scale(out, d)

    @inline
    def from_minimum(x: int, out: int) -> int:
        v0, v1 = load_f32x16(x), load_f32x16(x + 64)
        if amax_bits(v0, v1) >= INFINITY_BITS:
            return 1
        low, high = -max_lanes(maximum(-v0, -v1)), max_lanes(maximum(v0, v1))
        if low == f32(0.0):
            if mask_bits(signed_lanes(v0)) + mask_bits(signed_lanes(v1)) != 0:
                return 1
            low = f32(0.0)
        d = (high - low) / f32(largest)
        inverse, start, half = splat_f32x16(inverse_of(d)), splat_f32x16(low), splat_f32x16(f32(0.5))
        store_quants(out, (v0 - start) * inverse + half, (v1 - start) * inverse + half)
        return store_scale(out, d) | store_scale(out + 2, low)

    one = from_minimum if offset else centred

    @inline
    def encode(x: int, out: int, count: int) -> int:
        odd = 0
        for i in range(count):
            odd |= one(x + 128 * i, out + block_bytes * i)
        return odd

    return encode


def int8_encoder() -> Any:
    """Q8_0."""
    block_bytes = Q8_0.block_bytes

    @inline
    def rounded(scaled: Any) -> Any:
        """Halves go away from zero."""
        size = absolute(scaled)
        whole = to_f32(to_i32(size))
        result = whole + to_f32(to_i32(splat_f32x16(f32(2.0)) * (size - whole)))
        return to_i32(select(less(scaled, splat_f32x16(f32(0.0))), -result, result))

    @inline
    def one(x: int, out: int) -> int:
        v0, v1 = load_f32x16(x), load_f32x16(x + 64)
        largest = amax_bits(v0, v1)
        if largest >= INFINITY_BITS:
            return 1
        d = f32_of_bits(largest) / f32(127.0)
        inverse = splat_f32x16(inverse_of(d))
        store_i8x16(out + 2, rounded(v0 * inverse))
        store_i8x16(out + 18, rounded(v1 * inverse))
        return store_scale(out, d)

    @inline
    def encode(x: int, out: int, count: int) -> int:
        odd = 0
        for i in range(count):
            odd |= one(x + 128 * i, out + block_bytes * i)
        return odd

    return encode


def float_encoder(name: str) -> Any:
    """F16 and BF16, FLOAT_RUN elements as a block."""
    store = {F16.name: store_f16x16, BF16.name: store_bf16x16}[name]
    limit = LARGEST_BITS[name]

    @inline
    def encode(x: int, out: int, count: int) -> int:
        largest = splat_i32x16(0)
        for i in range(0, count * FLOAT_RUN, 16):
            v = load_f32x16(x + 4 * i)
            largest = maximum_i32(largest, magnitude_bits(v))
            store(out + 2 * i, v)
        return 1 if max_lanes_i32(largest) > limit else 0

    return encode
