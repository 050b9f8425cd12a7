"""Encoding super-blocks of 256 and IQ4_NL, whose scales are searched for, to the bytes of `minfer_ir.formats`.

An encoder takes (x, out, count, tries, n_tries): `count` blocks at x, at most as many as have sixteen groups. It
returns 1, and numpy has to encode them, where a magnitude reaches the searches' limit, isn't finite, or a scale is so
small that its inverse overflows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from minfer_ir.formats import IQ4_NL, Q2_K, Q3_K, Q5_K, Q6_K, format_named
from minfer_ir.formats.blocks import BlockFormat
from minfer_ir.formats.iq import FIRST, IQ4_LEVELS
from minfer_ir.formats.kquants import Affine, Centred
from minfer_ir.formats.search import LARGEST_SEARCHED, SMALLEST_PEAK
from minfer_kernels.cpu.kernels.parts.encode_columns import GROUPS, ROW, columns_of, largest_bits
from minfer_kernels.cpu.kernels.parts.encode_fits import (
    affine_fit,
    clamped,
    cut,
    descent_fit,
    levels,
    lifted_weights,
    magnitude_weights,
    signed_fit,
    splat,
    table_fit,
)
from minfer_kernels.cpu.kernels.parts.encode_small import INFINITY_BITS, MAGNITUDE, store_scale
from minfer_kernels.cpu.simd import (
    f32,
    inline,
    load_f32,
    load_f32x8,
    load_f32x16,
    load_i32,
    load_i32x16,
    max_lanes,
    maximum,
    minimum,
    round_even,
    splat_f32x16,
    store_f32,
    store_f32x16,
    store_i8x16,
    store_i32x8,
    store_i32x16,
    to_i32,
)
from minfer_kernels.cpu.simd.core import stack_room
from minfer_kernels.cpu.simd.ints import bit_field, times_power_of_two
from minfer_kernels.cpu.simd.rounding import f32_of_f16, stairs_of
from minfer_kernels.cpu.simd.scalars import bits_of_f32, load_u16, store_i8
from minfer_kernels.cpu.simd.widths import LANES

SUPER = 256
LIMIT_BITS = int(LARGEST_SEARCHED.view(np.int32))
PEAK_BITS = int(SMALLEST_PEAK.view(np.int32))
COLUMNS = stack_room(32 * ROW)
WEIGHTS = stack_room(32 * ROW)
QUANTS = stack_room(4 * SUPER)
LANES_ROOM = stack_room(ROW)


def field(name: str, of: str) -> int:
    """Where a field of a block begins."""
    fmt = format_named(name)
    assert isinstance(fmt, BlockFormat)
    fields: Any = fmt.layout.fields
    return fields[of][1]


def packer(bits: int, group: int, shift: int, n: int = SUPER) -> Callable[..., Any]:
    """(quants, out): the fields of `bits` from bit `shift` on of n int32 quants, laid out as `pack_planes` does."""
    planes, mask = 8 // bits, (1 << bits) - 1

    @inline
    def pack(quants: int, out: int) -> None:
        for run in range(0, n, group * planes):
            for e in range(0, group, 16):
                packed = bit_field(load_i32x16(quants + 4 * (run + e)), shift, mask)
                for plane in range(1, planes):
                    upper = bit_field(load_i32x16(quants + 4 * (run + e + group * plane)), shift, mask)
                    packed = packed + times_power_of_two(upper, bits * plane)
                store_i8x16(out + run // planes + e, packed)

    return pack


def _sharer(n_sub: int, largest: int) -> Callable[..., Any]:
    """(scales, ints, at): store the float16 scale of n_sub positive scales at `at`, and their integers, as float32.

    Returns whether it can, which it can't where the inverse of the largest scale overflows.
    """
    lanes = LANES[n_sub]
    splat_f32, load_lanes, store_lanes = lanes.splat_f32, lanes.load_f32, lanes.store_f32
    top = float(largest)

    @inline
    def share(scales: int, ints: int, at: int) -> bool:
        v, zero = load_lanes(scales), splat_f32(f32(0.0))
        peak = max_lanes(v)
        store_lanes(ints, zero)
        if peak > f32(0.0):
            factor = f32(top) / peak
            if bits_of_f32(factor) & MAGNITUDE >= INFINITY_BITS:
                return False
            whole = round_even(v * splat_f32(factor))
            store_lanes(ints, minimum(splat_f32(f32(top)), maximum(zero, whole)))
        store_scale(at, peak / f32(top))
        return True

    return share


def affine_encoder(name: str) -> Callable[..., Any]:
    """Q2_K, Q4_K and Q5_K."""
    fmt = format_named(name)
    assert isinstance(fmt, Affine)
    size, n_sub, top, block_bytes = fmt.sub_block, SUPER // fmt.sub_block, float(fmt.largest), fmt.block_bytes
    d_at, dmin_at = field(name, "d"), field(name, "dmin")
    columns = columns_of(size)
    weigh = lifted_weights(size) if size == 32 else magnitude_weights(size)
    fit, share = affine_fit(size, fmt.largest, fmt.absolute_errors), _sharer(n_sub, fmt.largest_scale)
    store = _q2_store() if name == Q2_K.name else _q45_store(name)

    @inline
    def one(x: int, out: int, scales: int, offsets: int, lows: int, factors: int) -> int:
        ints, mins, quants = LANES_ROOM(), LANES_ROOM(), QUANTS()
        if not (share(scales, ints, out + d_at) and share(offsets, mins, out + dmin_at)):
            return 1
        d, dmin = f32_of_f16(load_u16(out + d_at)), f32_of_f16(load_u16(out + dmin_at))
        for j in range(n_sub):
            step, shift = d * load_f32(ints + 4 * j), dmin * load_f32(mins + 4 * j)
            low, factor = load_f32(lows + 4 * j), load_f32(factors + 4 * j)
            for at in range(4 * size * j, 4 * size * (j + 1), 64):
                v = load_f32x16(x + at)
                if step == f32(0.0):
                    q = cut(v, splat_f32x16(low), splat_f32x16(factor), top)
                else:
                    q = clamped(round_even((v + splat_f32x16(shift)) / splat_f32x16(step)), 0.0, top)
                store_i32x16(quants + at, to_i32(q))
        store(quants, ints, mins, out)
        return 0

    @inline
    def encode(x: int, out: int, count: int, tries: int, n_tries: int) -> int:
        if largest_bits(x, SUPER * count) >= LIMIT_BITS:
            return 1
        groups, weights = COLUMNS(), WEIGHTS()
        scales, offsets, lows, factors = LANES_ROOM(), LANES_ROOM(), LANES_ROOM(), LANES_ROOM()
        columns(x, n_sub * count, groups)
        weigh(groups, weights)
        scale, offset, low, factor = fit(groups, weights, tries, n_tries)
        store_f32x16(scales, scale)
        store_f32x16(offsets, offset)
        store_f32x16(lows, low)
        store_f32x16(factors, factor)
        odd = 0
        for b in range(count):
            at = 4 * n_sub * b
            odd |= one(x + 4 * SUPER * b, out + block_bytes * b, scales + at, offsets + at, lows + at, factors + at)
        return odd

    return encode


def _q2_store() -> Callable[..., Any]:
    scales_at, pack, qs = field(Q2_K.name, "scales"), packer(2, 32, 0), field(Q2_K.name, "qs")

    @inline
    def store(quants: int, ints: int, mins: int, out: int) -> None:
        upper = times_power_of_two(to_i32(load_f32x16(mins)), 4)
        store_i8x16(out + scales_at, to_i32(load_f32x16(ints)) + upper)
        pack(quants, out + qs)

    return store


def _q45_store(name: str) -> Callable[..., Any]:
    five = name == Q5_K.name
    scales_at, qs, low = field(name, "scales"), field(name, "qs"), packer(4, 32, 0)
    qh, high = field(name, "qh") if five else 0, packer(1, 32, 4)

    @inline
    def store(quants: int, ints: int, mins: int, out: int) -> None:
        s, m = LANES_ROOM(), LANES_ROOM()
        store_i32x8(s, to_i32(load_f32x8(ints)))
        store_i32x8(m, to_i32(load_f32x8(mins)))
        for j in range(4):
            s0, s1 = load_i32(s + 4 * j), load_i32(s + 16 + 4 * j)
            m0, m1 = load_i32(m + 4 * j), load_i32(m + 16 + 4 * j)
            at = out + scales_at + j
            store_i8(at, s0 | (s1 & 48) << 2)
            store_i8(at + 4, m0 | (m1 & 48) << 2)
            store_i8(at + 8, s1 & 15 | (m1 & 15) << 4)
        low(quants, out + qs)
        if five:
            high(quants, out + qh)

    return store


def centred_encoder(name: str) -> Callable[..., Any]:
    """Q3_K and Q6_K."""
    fmt = format_named(name)
    assert isinstance(fmt, Centred)
    bottom, bottom_scale, d_at = float(fmt.lowest), float(fmt.lowest_scale), field(name, "d")
    columns = columns_of(GROUPS)
    fit, fitted = _q3_fit(fmt.lowest) if name == Q3_K.name else _q6_fit(fmt.lowest)
    store = _q3_store() if name == Q3_K.name else _q6_store()

    @inline
    def largest_of(scales: int) -> float:
        peak = load_f32(scales)
        for j in range(1, GROUPS):
            scale = load_f32(scales + 4 * j)
            if bits_of_f32(scale) & MAGNITUDE > bits_of_f32(peak) & MAGNITUDE:
                peak = scale
        return peak

    @inline
    def encode(x: int, out: int, _count: int, tries: int, n_tries: int) -> int:
        if largest_bits(x, SUPER) >= LIMIT_BITS:
            return 1
        groups, found, scales, quants = COLUMNS(), COLUMNS(), LANES_ROOM(), QUANTS()
        columns(x, GROUPS, groups)
        fit(groups, found, scales, tries, n_tries)
        peak = largest_of(scales)
        if bits_of_f32(peak) & MAGNITUDE < PEAK_BITS:
            return 0  # zeros, as the bytes are
        inverse = f32(bottom_scale) / peak
        store_scale(out + d_at, f32(1.0) / inverse)
        d = f32_of_f16(load_u16(out + d_at))
        whole = clamped(round_even(load_f32x16(scales) * splat_f32x16(inverse)), bottom_scale, -bottom_scale - 1.0)
        store_f32x16(scales, whole)
        for j in range(GROUPS):
            step, v = d * load_f32(scales + 4 * j), load_f32x16(x + ROW * j)
            if step == f32(0.0):
                level = fitted(found, j, v)
            else:
                level = clamped(round_even(v / splat_f32x16(step)), bottom, -bottom - 1.0)
            store_i32x16(quants + ROW * j, to_i32(level - splat(bottom)))
        store(quants, whole, out)
        return 0

    return encode


def _q6_fit(lowest: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    bottom, search = float(lowest), signed_fit(GROUPS, lowest)

    @inline
    def fit(groups: int, found: int, scales: int, tries: int, n_tries: int) -> None:
        scale, factor = search(groups, tries, n_tries)
        store_f32x16(scales, scale)
        store_f32x16(found, factor)

    @inline
    def fitted(found: int, j: int, v: Any) -> Any:
        factor = load_f32(found + 4 * j)
        return splat(bottom) if factor == f32(0.0) else levels(v, splat_f32x16(factor), bottom)

    return fit, fitted


def _q3_fit(lowest: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    search = descent_fit(GROUPS, lowest)

    @inline
    def fit(groups: int, found: int, scales: int, _tries: int, _n_tries: int) -> None:
        store_f32x16(scales, search(groups, found))

    @inline
    def fitted(found: int, j: int, _v: Any) -> Any:
        row = LANES_ROOM()
        for e in range(GROUPS):
            store_f32(row + 4 * e, load_f32(found + ROW * e + 4 * j))
        return load_f32x16(row)

    return fit, fitted


def _q6_store() -> Callable[..., Any]:
    low, high = packer(4, 64, 0), packer(2, 32, 4)
    ql, qh, scales_at = (field(Q6_K.name, of) for of in ("ql", "qh", "scales"))

    @inline
    def store(quants: int, scales: Any, out: int) -> None:
        low(quants, out + ql)
        high(quants, out + qh)
        store_i8x16(out + scales_at, to_i32(scales))

    return store


def _q3_store() -> Callable[..., Any]:
    low, high = packer(2, 32, 0), packer(1, 32, 2)
    qs, hmask, scales_at = (field(Q3_K.name, of) for of in ("qs", "hmask", "scales"))

    @inline
    def store(quants: int, scales: Any, out: int) -> None:
        low(quants, out + qs)
        high(quants, out + hmask)
        s = LANES_ROOM()
        store_i32x16(s, to_i32(scales + splat(32.0)))
        for j in range(8):
            store_i8(out + scales_at + j, load_i32(s + 4 * j) & 15 | (load_i32(s + 32 + 4 * j) & 15) << 4)
        for j in range(4):
            packed = load_i32(s + 4 * j) >> 4
            for plane in range(1, 4):
                packed |= load_i32(s + 16 * plane + 4 * j) >> 4 << 2 * plane
            store_i8(out + scales_at + 8 + j, packed)

    return store


def iq4_encoder() -> Callable[..., Any]:
    """IQ4_NL."""
    table = [float(level) for level in IQ4_LEVELS]
    starts = [(below + above) / 2 for below, above in itertools.pairwise(table)]
    to_level = stairs_of("iq4_level", table[0], starts, [b - a for a, b in itertools.pairwise(table)])
    to_index = stairs_of("iq4_index", 0.0, starts, [1.0] * len(starts))
    block_bytes, qs, d_at = IQ4_NL.block_bytes, field(IQ4_NL.name, "qs"), field(IQ4_NL.name, "d")
    columns, fit = columns_of(32), table_fit(32, FIRST, to_level)

    @inline
    def one(x: int, out: int, scale: float) -> int:
        inverse = splat_f32x16(f32(0.0) if scale == f32(0.0) else f32(1.0) / scale)
        low, high = to_index(load_f32x16(x) * inverse), to_index(load_f32x16(x + 64) * inverse)
        store_i8x16(out + qs, to_i32(low + splat(16.0) * high))
        return store_scale(out + d_at, scale)

    @inline
    def encode(x: int, out: int, count: int, tries: int, n_tries: int) -> int:
        if largest_bits(x, 32 * count) >= LIMIT_BITS:
            return 1
        groups, scales = COLUMNS(), LANES_ROOM()
        columns(x, count, groups)
        store_f32x16(scales, fit(groups, tries, n_tries))
        odd = 0
        for b in range(count):
            odd |= one(x + 128 * b, out + block_bytes * b, load_f32(scales + 4 * b))
        return odd

    return encode
