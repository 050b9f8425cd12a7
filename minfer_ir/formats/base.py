"""What a storage format is: geometry plus numpy encode and decode, the byte truth that kernels are held to."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

# Decoding and checking walk the data in pieces of about this many elements: temporaries stay in a core's cache.
CHUNK_ELEMENTS = 1 << 16


class EncodeError(ValueError):
    """A value that a format can't hold, in `row` of the rows that were to be encoded."""

    def __init__(self, fmt: str, value: np.floating, row: int, place: str, reason: str = "") -> None:
        self.fmt, self.value, self.row, self.place, self.reason = fmt, value, row, place, reason
        super().__init__(f"{fmt} cannot hold {value!s} (row {row}, {place}){reason}")

    def below(self, rows: int) -> EncodeError:
        """The same error where `rows` more rows stand before these."""
        return EncodeError(self.fmt, self.value, self.row + rows, self.place, self.reason)


class Format(ABC):
    """One storage format of a row of numbers, in blocks of `block_size` elements that take `block_bytes` bytes.

    `row_bytes` is the contract. How a block's bytes lie in the row is up to the format: the weight formats
    (`BlockFormat`, `FloatFormat`) store block after block as GGUF does, the activation formats (`Q8A32`, `Q8A256`)
    store planes.

    Instances are stateless singletons, compared by identity, each a global under `name` in the module of its
    class, and listed in `minfer_ir.formats.FORMATS`, or in `CELL_FORMATS` where it packs KV cells.
    """

    name: str
    block_size: int
    block_bytes: int

    def row_bytes(self, n: int) -> int:
        """Bytes of a row of `n` elements; raises ValueError when `n` is not a multiple of `block_size`."""
        if n < 0 or n % self.block_size:
            raise ValueError(f"a row of {n} elements is not a whole number of {self.name} blocks of {self.block_size}")
        return n // self.block_size * self.block_bytes

    def row_elements(self, n_bytes: int) -> int:
        """Elements in a row of `n_bytes` bytes; raises ValueError when that is not a whole number of blocks."""
        if n_bytes < 0 or n_bytes % self.block_bytes:
            raise ValueError(
                f"a row of {n_bytes} bytes is not a whole number of {self.name} blocks of {self.block_bytes} bytes"
            )
        return n_bytes // self.block_bytes * self.block_size

    @abstractmethod
    def decode(self, data: Bytes) -> Floats:
        """Rows of bytes `[..., row_bytes(n)]` uint8 to values `[..., n]` float32.

        The result may be a view of `data` (F32) and is not to be written to. Raises ValueError for bytes that are
        not whole blocks.
        """

    @abstractmethod
    def encode(self, values: Floats) -> Bytes:
        """Values `[..., n]` float32 to rows of bytes `[..., row_bytes(n)]` uint8.

        Raises ValueError for rows that are not whole blocks, and EncodeError (a ValueError) for a finite value beyond
        the format's range. The block formats also refuse NaN and infinity, which no block can hold; the float formats
        keep them.
        """

    @abstractmethod
    def scales(self, data: Bytes) -> Floats:
        """Every floating-point number stored in rows `[..., row_bytes(n)]`, as float32 `[..., n / block_size, k]`.

        They are the block's scale and, where it has one, its minimum; for F32, F16 and BF16 the value itself.
        """

    @abstractmethod
    def draw(self, rng: np.random.Generator, rows: int, n: int, scale: float = 0.02) -> Bytes:
        """Random rows `[rows, row_bytes(n)]` whose values have mean about 0 and standard deviation about `scale`.

        The same generator state gives the same bytes.
        """

    def find_nonfinite(self, data: Bytes) -> tuple[int, int] | None:
        """The first (row, block) of `[..., row_bytes(n)]` that holds a NaN or infinite scale, or None.

        Leading axes count as one row axis. Reads the scales only.
        """
        n_blocks = self.row_elements(data.shape[-1]) // self.block_size
        if data.size == 0:
            return None
        rows = data.reshape(-1, data.shape[-1])
        step = max(1, CHUNK_ELEMENTS // n_blocks)
        for start in range(0, len(rows), step):
            finite = np.isfinite(self.scales(rows[start : start + step])).all(axis=-1)
            if not finite.all():
                row, block = divmod(int(np.argmin(finite)), n_blocks)
                return start + row, block
        return None

    def __reduce__(self) -> str:
        return self.name  # pickled and copied as a reference to the singleton, so identity survives

    def __repr__(self) -> str:
        return self.name


def check_bytes(fmt: Format, data: Bytes) -> int:
    """Elements per row of `data`; raises ValueError unless it is uint8 rows of whole blocks."""
    if data.dtype != np.uint8 or data.ndim == 0:
        raise ValueError(f"{fmt.name} data must be rows of uint8, got {data.dtype} of shape {data.shape}")
    return fmt.row_elements(data.shape[-1])


def check_floats(fmt: Format, values: Floats) -> int:
    """Bytes per row that `values` encode to; raises ValueError unless they are float32 rows of whole blocks."""
    if values.dtype != np.float32 or values.ndim == 0:
        raise ValueError(f"{fmt.name} encodes rows of float32, got {values.dtype} of shape {values.shape}")
    return fmt.row_bytes(values.shape[-1])
