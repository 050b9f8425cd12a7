"""Unquantized weights: F32, F16 and BF16 as formats of one-element blocks."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from minfer_ir.formats.base import Bytes, EncodeError, Floats, Format, check_bytes, check_floats

DRAWN_VALUES = 1 << 16
"""Normal deviates take 20-40 ns each; picking among this many takes 2, and models have a billion."""


class FloatFormat(Format):
    """A format of one little-endian floating-point number per block. NaN and infinity are kept."""

    block_size = 1

    def __init__(self, name: str, block_bytes: int) -> None:
        self.name, self.block_bytes = name, block_bytes

    @abstractmethod
    def narrow(self, values: Floats) -> Bytes:
        """Round values `[..., n]` to this format's bytes, to nearest even; too large a value becomes infinite."""

    def encode(self, values: Floats) -> Bytes:
        """See `Format.encode`."""
        check_floats(self, values)
        values = np.ascontiguousarray(values)
        data = self.narrow(values)
        overflow = np.isinf(self.decode(data)) & np.isfinite(values)
        if overflow.any():
            flat = int(np.argmax(overflow))
            row, element = divmod(flat, values.shape[-1])
            raise EncodeError(self.name, values.reshape(-1)[flat], row, f"element {element}")
        return data

    def scales(self, data: Bytes) -> Floats:
        """See `Format.scales`."""
        return self.decode(data)[..., None]

    def draw(self, rng: np.random.Generator, rows: int, n: int, scale: float = 0.02) -> Bytes:
        """See `Format.draw`. Rows of more than DRAWN_VALUES elements in all repeat that many drawn values at random."""
        distinct = min(rows * n, DRAWN_VALUES)
        drawn = self.encode(rng.standard_normal((distinct, 1), dtype=np.float32) * np.float32(scale))
        if rows * n <= DRAWN_VALUES:
            return drawn.reshape(rows, -1)
        picks = rng.integers(0, DRAWN_VALUES, rows * n, dtype=np.uint16)
        return drawn.view(f"<u{self.block_bytes}")[picks].view(np.uint8).reshape(rows, -1)


class _Float32(FloatFormat):
    def decode(self, data: Bytes) -> Floats:
        """See `Format.decode`."""
        check_bytes(self, data)
        return np.ascontiguousarray(data).view("<f4")

    def narrow(self, values: Floats) -> Bytes:
        return values.copy().view(np.uint8)


class _Float16(FloatFormat):
    def decode(self, data: Bytes) -> Floats:
        """See `Format.decode`."""
        check_bytes(self, data)
        return np.ascontiguousarray(data).view("<f2").astype(np.float32)

    def narrow(self, values: Floats) -> Bytes:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return values.astype("<f2").view(np.uint8)


class _BFloat16(FloatFormat):
    """The upper half of a float32. NaN stays NaN: it is made quiet, because rounding could carry it into infinity."""

    def decode(self, data: Bytes) -> Floats:
        """See `Format.decode`."""
        check_bytes(self, data)
        widened = np.ascontiguousarray(data).view("<u2").astype(np.uint32)
        widened <<= np.uint32(16)
        return widened.view(np.float32)

    def narrow(self, values: Floats) -> Bytes:
        bits = values.view(np.uint32)
        upper = bits >> np.uint32(16)
        rounded = (bits + (np.uint32(0x7FFF) + (upper & np.uint32(1)))) >> np.uint32(16)
        halves = np.where(np.isnan(values), upper | np.uint32(0x40), rounded)
        return halves.astype("<u2").view(np.uint8)


F32 = _Float32("F32", 4)
F16 = _Float16("F16", 2)
BF16 = _BFloat16("BF16", 2)
