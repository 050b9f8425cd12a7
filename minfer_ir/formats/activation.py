"""Activations in 8 bits: rows of planes (quants, scales, sums) that integer kernels read, and never a file.

One block of x quantizes, in float32 and in this order, as

    amax = max |x|;  d = amax / 127;  r = 127 / amax;  q = x * r rounded to nearest, halves to even

with d = r = 0 below `SMALLEST_AMAX`. A block holding a NaN or infinity gets q = 0 and d = NaN (bits 0x7FC00000), so
that the NaN reaches every product of the block. Q8A32 adds the integer sum of the block's quants, Q8A256 the sums of
16 quants each. Kernels are held to these bits.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats.base import Bytes, Floats, Format, check_bytes, check_floats

# 127 / amax overflows float32 below 3.8e-37; a block this small counts as zeros.
SMALLEST_AMAX = np.float32(1e-36)

Int8s = NDArray[np.int8]
Int16s = NDArray[np.int16]
Int32s = NDArray[np.int32]
Sum = TypeVar("Sum", np.int32, np.int16)

_INFINITY_BITS = np.int32(0x7F800000)
_ABS_BITS = np.int32(0x7FFFFFFF)


class Planes(NamedTuple, Generic[Sum]):
    """Views of the planes of rows `[..., row_bytes(n)]`; writing to them writes the rows."""

    quants: Int8s
    """`[..., n]` int8, within -127..127."""
    scales: Floats
    """`[..., n / block_size]` float32."""
    sums: NDArray[Sum]
    """Q8A32: the sum of a block's quants, `[..., n / 32]` int32.
    Q8A256: sums of 16 consecutive quants, `[..., n / 16]` int16."""


class ActivationFormat(Format, Generic[Sum]):
    """A row of n int8 quants, then n / block_size float32 scales, then the sums."""

    sum_dtype: np.dtype[Sum]

    def __init__(self, name: str, block_size: int, sums_per_block: int, sum_dtype: np.dtype[Sum]) -> None:
        self.name, self.block_size, self.sum_dtype = name, block_size, sum_dtype
        self.block_bytes = block_size + 4 + sums_per_block * sum_dtype.itemsize

    @abstractmethod
    def sums_of(self, quants: Int8s) -> NDArray[Sum]:
        """The sums plane of quants `[..., n]`."""

    def planes(self, data: Bytes) -> Planes[Sum]:
        """Views of the planes of rows `[..., row_bytes(n)]`, whose last axis must be contiguous."""
        n = check_bytes(self, data)
        sums_at = n + n // self.block_size * 4
        quants, scales, sums = data[..., :n], data[..., n:sums_at], data[..., sums_at:]
        return Planes(quants.view(np.int8), scales.view(np.float32), sums.view(self.sum_dtype))

    def decode(self, data: Bytes) -> Floats:
        """See `Format.decode`."""
        planes = self.planes(data)
        blocks = planes.quants.reshape(*planes.scales.shape, self.block_size).astype(np.float32)
        return (blocks * planes.scales[..., None]).reshape(planes.quants.shape)

    def encode(self, values: Floats) -> Bytes:
        """See `Format.encode`."""
        data = np.empty((*values.shape[:-1], check_floats(self, values)), np.uint8)
        planes = self.planes(data)
        blocks = np.ascontiguousarray(values).reshape(*planes.scales.shape, self.block_size)
        quants, scales = _quantize(blocks)
        quants = quants.reshape(values.shape)
        planes.quants[...], planes.scales[...] = quants, scales
        planes.sums[...] = self.sums_of(quants)
        return data

    def scales(self, data: Bytes) -> Floats:
        """See `Format.scales`."""
        return self.planes(data).scales[..., None]

    def draw(self, rng: np.random.Generator, rows: int, n: int, scale: float = 0.02) -> Bytes:
        """See `Format.draw`."""
        return self.encode(rng.standard_normal((rows, n), dtype=np.float32) * np.float32(scale))


class _Q8A32(ActivationFormat[np.int32]):
    """For the 32-element weight types; the sums carry the minimum or the centre of a weight block."""

    def sums_of(self, quants: Int8s) -> Int32s:
        return quants.reshape(*quants.shape[:-1], quants.shape[-1] // 32, 32).sum(axis=-1, dtype=np.int32)


class _Q8A256(ActivationFormat[np.int16]):
    """For K-quants; the sums of 16 quants carry the offsets of a weight's sub-blocks."""

    def sums_of(self, quants: Int8s) -> Int16s:
        return quants.reshape(*quants.shape[:-1], quants.shape[-1] // 16, 16).sum(axis=-1, dtype=np.int16)


def _quantize(blocks: Floats) -> tuple[Int8s, Floats]:
    """Quants `[..., block_size]` and scales `[...]` of blocks `[..., block_size]`."""
    # Integer maximum of the magnitudes' bit patterns: they order as the magnitudes do, with NaN above infinity.
    bits = (blocks.view(np.int32) & _ABS_BITS).max(axis=-1)
    finite = bits < _INFINITY_BITS
    amax = np.where(finite, bits, np.int32(0)).view(np.float32)
    tiny = amax < SMALLEST_AMAX
    largest = np.float32(127)
    d = np.where(tiny, np.float32(0), amax / largest)
    r = np.where(tiny, np.float32(0), largest / np.where(tiny, np.float32(1), amax))
    with np.errstate(under="ignore"):
        scaled = np.where(finite[..., None], blocks, np.float32(0)) * r[..., None]
    return np.rint(scaled).astype(np.int8), np.where(finite, d, np.float32(np.nan))


Q8A32 = _Q8A32("Q8A32", 32, 1, np.dtype(np.int32))
Q8A256 = _Q8A256("Q8A256", 256, 16, np.dtype(np.int16))
