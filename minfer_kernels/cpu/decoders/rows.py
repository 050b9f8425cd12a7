"""Decoders of rows as they lie in a GGUF file: eight values at a time, bit-equal to `Format.decode`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from minfer_ir.formats import WEIGHT_FORMATS, BlockFormat
from minfer_ir.formats.iq import IQ4_LEVELS
from minfer_kernels.cpu.decoders.protocol import Step
from minfer_kernels.cpu.decoders.row_kquants import KQUANT_ROWS
from minfer_kernels.cpu.decoders.steps import splat_f16
from minfer_kernels.cpu.simd import (
    f32_of_bits,
    inline,
    load_bf16x8,
    load_f16x8,
    load_f16x8_partial,
    load_f32,
    load_f32x8,
    load_i8x8,
    load_i16,
    load_u8,
    splat_f32x8,
    splat_i32x8,
    to_f32,
)
from minfer_kernels.cpu.simd.ints import bit_field, bits_of_byte, load_u8x8, look_up_of, times_power_of_two
from minfer_kernels.cpu.weights.layouts import block_offset

_iq4_level = look_up_of("iq4_level", IQ4_LEVELS.tolist())


@dataclass(frozen=True, slots=True)
class RowDecoder:
    """Decoding of one format; `row` is the address of a row, `i` an element's index in it."""

    eight: Step
    """(row, i) to f32x8: elements i to i + 7, i a multiple of 8."""
    one: Step | None
    """(row, i) to f32x8 with element i in lane 0, where rows may end between multiples of 8 (else None)."""


@cache
def row_decoder(fmt: str) -> RowDecoder:
    """The row decoder of the weight format with GGML name `fmt`."""
    if fmt in _FLOATS:
        return _FLOATS[fmt]
    block_format = WEIGHT_FORMATS[fmt]
    assert isinstance(block_format, BlockFormat)
    make = KQUANT_ROWS.get(fmt) or _SIMPLE[fmt]
    return RowDecoder(make(block_format), None)


_FLOATS = {
    "F32": RowDecoder(
        inline(lambda row, i: load_f32x8(row + 4 * i)),
        inline(lambda row, i: splat_f32x8(load_f32(row + 4 * i))),
    ),
    "F16": RowDecoder(
        inline(lambda row, i: load_f16x8(row + 2 * i)),
        inline(lambda row, i: load_f16x8_partial(row + 2 * i, 1)),
    ),
    "BF16": RowDecoder(
        inline(lambda row, i: load_bf16x8(row + 2 * i)),
        inline(lambda row, i: splat_f32x8(f32_of_bits(load_i16(row + 2 * i) << 16))),
    ),
}


def _nibbles(fmt: BlockFormat) -> Step:
    """(block, r) to the quants r to r + 7 of a block of 32, as stored: 4 bits, or 5 with `qh`."""
    qs = block_offset(fmt, "qs")
    low = inline(lambda block, r: bit_field(load_u8x8(block + qs + r % 16), r // 16 * 4, 15))
    if "qh" not in (fmt.layout.names or ()):
        return low
    qh = block_offset(fmt, "qh")
    return inline(lambda block, r: low(block, r) + times_power_of_two(bits_of_byte(load_u8(block + qh + r // 8)), 4))


def _centred(centre: int) -> Callable[[BlockFormat], Step]:
    def make(fmt: BlockFormat) -> Step:
        quants, block_bytes = _nibbles(fmt), fmt.block_bytes

        @inline
        def eight(row: Any, i: Any) -> Any:
            block = row + i // 32 * block_bytes
            return splat_f16(block) * to_f32(quants(block, i % 32) - splat_i32x8(centre))

        return eight

    return make


def _with_minimum(fmt: BlockFormat) -> Step:
    quants, block_bytes, m_at = _nibbles(fmt), fmt.block_bytes, block_offset(fmt, "m")

    @inline
    def eight(row: Any, i: Any) -> Any:
        block = row + i // 32 * block_bytes
        return splat_f16(block) * to_f32(quants(block, i % 32)) + splat_f16(block + m_at)

    return eight


def _signed_bytes(fmt: BlockFormat) -> Step:
    qs, block_bytes = block_offset(fmt, "qs"), fmt.block_bytes

    @inline
    def eight(row: Any, i: Any) -> Any:
        block = row + i // 32 * block_bytes
        return splat_f16(block) * to_f32(load_i8x8(block + qs + i % 32))

    return eight


def _levels(fmt: BlockFormat) -> Step:
    quants, block_bytes = _nibbles(fmt), fmt.block_bytes

    @inline
    def eight(row: Any, i: Any) -> Any:
        block = row + i // 32 * block_bytes
        return splat_f16(block) * to_f32(_iq4_level(quants(block, i % 32)))

    return eight


# All of these blocks start with the scale d.
_SIMPLE: dict[str, Callable[[BlockFormat], Step]] = {
    "Q4_0": _centred(8),
    "Q4_1": _with_minimum,
    "Q5_0": _centred(16),
    "Q5_1": _with_minimum,
    "Q8_0": _signed_bytes,
    "IQ4_NL": _levels,
}
