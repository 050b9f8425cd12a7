"""Packed KV cells: one token's K or V row in 8 bits, read by attention and never a file.

A cell of n elements is n int8 quants, then n / 32 float16 scales, then zeros up to a multiple of 16 bytes. The numbers
are those of GGUF Q8_0, whose 34-byte blocks would leave no quants aligned. A block of x quantizes, in float32, as

    d = max |x| / 127, stored as float16;  q = x * (1 / d) rounded to nearest, halves away from zero

with the d before it was stored, and q = 0 where 1 / d overflows. A block that holds a NaN or infinity, or whose d
overflows float16, gets q = 0 and a scale of NaN (bits 0x7E00), so that attention over the cell shows it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats.base import Bytes, Floats, Format, check_bytes, check_floats

CELL_ALIGNMENT = 16
_NAN = np.uint16(0x7E00)


class CellFormat(Format):
    """Rows of int8 quants, then float16 scales, then padding."""

    def __init__(self, name: str) -> None:
        self.name, self.block_size, self.block_bytes = name, 32, 34

    def row_bytes(self, n: int) -> int:
        """Bytes of a cell of `n` elements; raises ValueError when `n` is not a multiple of 32."""
        return -(-super().row_bytes(n) // CELL_ALIGNMENT) * CELL_ALIGNMENT

    def row_elements(self, n_bytes: int) -> int:
        """Elements in a cell of `n_bytes` bytes; raises ValueError when no cell has that size."""
        n = n_bytes // self.block_bytes * self.block_size
        if n_bytes < 0 or self.row_bytes(n) != n_bytes:
            raise ValueError(
                f"a row of {n_bytes} bytes is not a whole number of {self.name} blocks, padded to 16 bytes"
            )
        return n

    def planes(self, data: Bytes) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        """Views of the quants `[..., n]` and the scales `[..., n / 32]` of cells `[..., row_bytes(n)]`."""
        n = check_bytes(self, data)
        scales = data[..., n : n + n // self.block_size * 2]
        return data[..., :n].view(np.int8), scales.view(np.float16)

    def decode(self, data: Bytes) -> Floats:
        """See `Format.decode`."""
        quants, scales = self.planes(data)
        blocks = quants.reshape(*scales.shape, self.block_size).astype(np.float32)
        return (blocks * scales[..., None].astype(np.float32)).reshape(quants.shape)

    def encode(self, values: Floats) -> Bytes:
        """Cells `[..., row_bytes(n)]` of values `[..., n]`; NaN, infinity and what overflows make their block NaN."""
        data = np.zeros((*values.shape[:-1], check_floats(self, values)), np.uint8)
        quants, scales = self.planes(data)
        blocks = np.ascontiguousarray(values).reshape(*scales.shape, self.block_size)
        with np.errstate(all="ignore"):
            d = np.abs(blocks).max(axis=-1) / np.float32(127)
            inverse = np.float32(1) / d
            stored = d.astype(np.float16)
            scaled = blocks * np.where(np.isfinite(inverse), inverse, np.float32(0))[..., None]
            # Exact: the sum of a float32 below 2**22 and a half needs no rounding that could cross an integer.
            rounded = np.copysign(np.floor(np.abs(scaled).astype(np.float64) + 0.5), scaled)
        broken = ~np.isfinite(stored)
        rounded[broken] = 0
        quants[...] = rounded.reshape(quants.shape)
        scales[...] = stored
        scales.view(np.uint16)[broken] = _NAN
        return data

    def scales(self, data: Bytes) -> Floats:
        """See `Format.scales`."""
        return self.planes(data)[1].astype(np.float32)[..., None]

    def draw(self, rng: np.random.Generator, rows: int, n: int, scale: float = 0.02) -> Bytes:
        """See `Format.draw`."""
        return self.encode(rng.standard_normal((rows, n), dtype=np.float32) * np.float32(scale))

    def __reduce__(self) -> str:
        return "Q8_0_CELL"


Q8_0_CELL = CellFormat("q8_0")
CELL_FORMATS: dict[str, Format] = {Q8_0_CELL.name: Q8_0_CELL}
"""The packed formats of KV cells by name: lower case, as those that are scalar types are."""


def cell_values(cells: NDArray[Any]) -> NDArray[Any]:
    """Stored cells as numbers: bytes are cells of the one packed format, float16 and float32 are numbers already."""
    return Q8_0_CELL.decode(cells) if cells.dtype == np.uint8 else cells


def stored_cells(values: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """Rows of float32 as `like` stores its cells."""
    return Q8_0_CELL.encode(values) if like.dtype == np.uint8 else values.astype(like.dtype)
