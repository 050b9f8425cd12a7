"""Eight values at a time of K-quant rows as they lie in a GGUF file (ggml-quants.c, dequantize_row_q*_K)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_ir.formats import BlockFormat
from minfer_kernels.cpu.decoders.protocol import Step
from minfer_kernels.cpu.decoders.steps import splat_f16
from minfer_kernels.cpu.simd import f32, inline, load_u8, splat_f32x8, splat_i32x8, to_f32
from minfer_kernels.cpu.simd.ints import bit_field, load_u8x8, times_power_of_two
from minfer_kernels.cpu.weights.layouts import block_offset


def _affine(scale_and_minimum: Callable[[BlockFormat], Step], quants: Callable[[BlockFormat], Step]) -> Any:
    """value = (d * scale) * q - dmin * minimum."""

    def make(fmt: BlockFormat) -> Step:
        small, quants_at, block_bytes = scale_and_minimum(fmt), quants(fmt), fmt.block_bytes
        d_at, dmin_at = block_offset(fmt, "d"), block_offset(fmt, "dmin")

        @inline
        def eight(row: Any, i: Any) -> Any:
            block, r = row + i // 256 * block_bytes, i % 256
            scale, minimum = small(block, r)
            scaled = splat_f16(block + d_at) * splat_f32x8(f32(scale)) * to_f32(quants_at(block, r))
            return scaled - splat_f16(block + dmin_at) * splat_f32x8(f32(minimum))

        return eight

    return make


def _centred(scales: Callable[[BlockFormat], Step], quants: Callable[[BlockFormat], Step], centre: int) -> Any:
    """value = (d * scale) * (q - centre)."""

    def make(fmt: BlockFormat) -> Step:
        scale, quants_at, block_bytes = scales(fmt), quants(fmt), fmt.block_bytes
        d_at = block_offset(fmt, "d")

        @inline
        def eight(row: Any, i: Any) -> Any:
            block, r = row + i // 256 * block_bytes, i % 256
            scaled = splat_f16(block + d_at) * splat_f32x8(f32(scale(block, r)))
            return scaled * to_f32(quants_at(block, r) - splat_i32x8(centre))

        return eight

    return make


# Small scales: (block, element r) to what scales the element's sub-block.


def _small_q2(fmt: BlockFormat) -> Step:
    at = block_offset(fmt, "scales")

    @inline
    def small(block: Any, r: Any) -> Any:
        both = load_u8(block + at + r // 16)
        return both & 15, both >> 4

    return small


def _small_q3(fmt: BlockFormat) -> Step:
    at = block_offset(fmt, "scales")

    @inline
    def small(block: Any, r: Any) -> Any:
        sub = r // 16
        low = (load_u8(block + at + sub % 8) >> (sub // 8 * 4)) & 15
        high = (load_u8(block + at + 8 + sub % 4) >> (sub // 4 * 2)) & 3
        return (low | (high << 4)) - 32

    return small


def _small_q4(fmt: BlockFormat) -> Step:
    at = block_offset(fmt, "scales")

    @inline
    def small(block: Any, r: Any) -> Any:
        p, sub = block + at, r // 32
        if sub < 4:
            return load_u8(p + sub) & 63, load_u8(p + sub + 4) & 63
        mixed = load_u8(p + sub + 4)
        return (mixed & 15) | (load_u8(p + sub - 4) >> 6 << 4), (mixed >> 4) | (load_u8(p + sub) >> 6 << 4)

    return small


def _small_q6(fmt: BlockFormat) -> Step:
    at = block_offset(fmt, "scales")

    @inline
    def small(block: Any, r: Any) -> Any:
        byte = load_u8(block + at + r // 16)
        return byte - ((byte & 128) << 1)

    return small


# Quants as stored: (block, element r, a multiple of 8) to i32x8.


def _quants_q2(fmt: BlockFormat) -> Step:
    at = block_offset(fmt, "qs")
    return inline(lambda block, r: bit_field(load_u8x8(block + at + r // 128 * 32 + r % 32), r % 128 // 32 * 2, 3))


def _quants_q3(fmt: BlockFormat) -> Step:
    low, high_at = _quants_q2(fmt), block_offset(fmt, "hmask")

    @inline
    def quants(block: Any, r: Any) -> Any:
        high = bit_field(load_u8x8(block + high_at + r % 32), r // 32, 1)
        return low(block, r) + times_power_of_two(high, 2)

    return quants


def _quants_q4(fmt: BlockFormat) -> Step:
    at = block_offset(fmt, "qs")
    return inline(lambda block, r: bit_field(load_u8x8(block + at + r // 64 * 32 + r % 32), r % 64 // 32 * 4, 15))


def _quants_q5(fmt: BlockFormat) -> Step:
    low, high_at = _quants_q4(fmt), block_offset(fmt, "qh")

    @inline
    def quants(block: Any, r: Any) -> Any:
        high = bit_field(load_u8x8(block + high_at + r % 32), r // 32, 1)
        return low(block, r) + times_power_of_two(high, 4)

    return quants


def _quants_q6(fmt: BlockFormat) -> Step:
    low_at, high_at = block_offset(fmt, "ql"), block_offset(fmt, "qh")

    @inline
    def quants(block: Any, r: Any) -> Any:
        half, chunk = r // 128, r % 128 // 32
        low = bit_field(load_u8x8(block + low_at + 64 * half + r % 64), chunk // 2 * 4, 15)
        high = bit_field(load_u8x8(block + high_at + 32 * half + r % 32), chunk * 2, 3)
        return low + times_power_of_two(high, 4)

    return quants


KQUANT_ROWS: dict[str, Callable[[BlockFormat], Step]] = {
    "Q2_K": _affine(_small_q2, _quants_q2),
    "Q3_K": _centred(_small_q3, _quants_q3, 4),
    "Q4_K": _affine(_small_q4, _quants_q4),
    "Q5_K": _affine(_small_q4, _quants_q5),
    "Q6_K": _centred(_small_q6, _quants_q6, 32),
}
"""From a format's blocks to (row, i) to f32x8, by GGML name."""
