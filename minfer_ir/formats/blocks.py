"""Block formats: rows of equal byte structures, decoded and encoded in pieces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats.base import CHUNK_ELEMENTS, Bytes, EncodeError, Floats, Format, check_bytes, check_floats

Blocks = NDArray[np.void]
Float16s = NDArray[np.float16]

F16_SMALLEST = 2.0**-24


class BlockFormat(Format):
    """A format whose row is a run of blocks, each the packed little-endian structure `layout`.

    `layout` is the geometry as data: `blocks.view(layout)["qs"]` is a field of many blocks. Its float16 fields are the
    scales. A subclass decodes and encodes many blocks at once; this class cuts rows into them and checks the rest.
    """

    layout: np.dtype[np.void]
    unit_std: float  # standard deviation of the decoded value of random quants under a scale of 1

    def __init__(self, name: str, block_size: int, layout: np.dtype[np.void]) -> None:
        self.name, self.block_size, self.layout, self.block_bytes = name, block_size, layout, layout.itemsize
        self.scale_fields = tuple(field for field in layout.names or () if layout[field] == np.float16)

    @abstractmethod
    def decode_blocks(self, blocks: Blocks) -> Floats:
        """Blocks `[n]` of dtype `layout` to values `[n, block_size]`."""

    @abstractmethod
    def encode_blocks(self, values: Floats, blocks: Blocks) -> None:
        """Encode finite values `[n, block_size]` into zeroed blocks `[n]`; a scale out of range becomes infinite."""

    @abstractmethod
    def fill_scales(self, rng: np.random.Generator, blocks: Blocks, unit: Floats) -> None:
        """Give blocks `[n]` of random bytes scales under which their values deviate by `unit * unit_std`."""

    def decode(self, data: Bytes) -> Floats:
        """See `Format.decode`."""
        n = check_bytes(self, data)
        values = np.empty((*data.shape[:-1], n), np.float32)
        blocks = self._blocks(data)
        by_block = values.reshape(-1, self.block_size)
        with np.errstate(all="ignore"):
            for part in self._parts(len(blocks)):
                by_block[part] = self.decode_blocks(blocks[part])
        return values

    def encode(self, values: Floats) -> Bytes:
        """See `Format.encode`."""
        n_bytes = check_floats(self, values)
        data = np.zeros((*values.shape[:-1], n_bytes), np.uint8)
        blocks = self._blocks(data)
        by_block = np.ascontiguousarray(values).reshape(-1, self.block_size)
        per_row = values.shape[-1] // self.block_size
        for part in self._parts(len(blocks)):
            self._check_finite(by_block[part], part.start, per_row)
            with np.errstate(all="ignore"):
                self.encode_blocks(by_block[part], blocks[part])
            self._check_in_range(by_block[part], blocks[part], part.start, per_row)
        return data

    def scales(self, data: Bytes) -> Floats:
        """See `Format.scales`."""
        n_blocks = check_bytes(self, data) // self.block_size
        blocks = self._blocks(data)
        scales = np.empty((len(blocks), len(self.scale_fields)), np.float32)
        for column, field in enumerate(self.scale_fields):
            scales[:, column] = blocks[field]
        return scales.reshape(*data.shape[:-1], n_blocks, len(self.scale_fields))

    def draw(self, rng: np.random.Generator, rows: int, n: int, scale: float = 0.02) -> Bytes:
        """See `Format.draw`."""
        unit = scale / self.unit_std
        if not F16_SMALLEST * 2 <= unit <= 4096:
            low, high = F16_SMALLEST * 2 * self.unit_std, 4096 * self.unit_std
            raise ValueError(f"{self.name} draws values of scale {low:.3g} to {high:.3g}, asked for {scale}")
        data = rng.integers(0, 256, size=(rows, self.row_bytes(n)), dtype=np.uint8)
        blocks = self._blocks(data)
        for part in self._parts(len(blocks)):
            spread = rng.random(part.stop - part.start, dtype=np.float32) / np.float32(2) + np.float32(0.75)
            self.fill_scales(rng, blocks[part], np.float32(unit) * spread)
        return data

    def _blocks(self, data: Bytes) -> Blocks:
        return np.ascontiguousarray(data).reshape(-1, self.block_bytes).view(self.layout)[:, 0]

    def _parts(self, n_blocks: int) -> Iterator[slice[int, int, int]]:
        step = max(1, CHUNK_ELEMENTS // self.block_size)
        return (slice(start, min(start + step, n_blocks)) for start in range(0, n_blocks, step))

    def _check_finite(self, values: Floats, first: int, per_row: int) -> None:
        finite = np.isfinite(values)
        if finite.all():
            return
        block, element = divmod(int(np.argmin(finite)), self.block_size)
        row, block_in_row = divmod(first + block, per_row)
        at = block_in_row * self.block_size + element
        raise EncodeError(self.name, values[block, element], row, f"element {at}")

    def _check_in_range(self, values: Floats, blocks: Blocks, first: int, per_row: int) -> None:
        finite = np.ones(len(blocks), np.bool_)
        for field in self.scale_fields:
            finite &= np.isfinite(blocks[field])
        if finite.all():
            return
        block = int(np.argmin(finite))
        row, block_in_row = divmod(first + block, per_row)
        largest = values[block, np.argmax(np.abs(values[block]))]
        raise EncodeError(self.name, largest, row, f"block {block_in_row}", ": its float16 scale overflows")


def random_signs(rng: np.random.Generator, n: int) -> Floats:
    """`n` values of -1 or 1."""
    return rng.choice(np.array([-1, 1], np.float32), size=n)


def uniform_square(low: int, high: int) -> float:
    """Mean square of integers drawn evenly from `low` to `high`, both included."""
    return float(np.mean(np.arange(low, high + 1, dtype=np.float64) ** 2))
