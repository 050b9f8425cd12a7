"""What a block format is: geometry plus numpy encode and decode, the byte truth that kernels are held to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


class Format(ABC):
    """One storage format of a row of numbers, in blocks of `block_size` elements and `block_bytes` bytes.

    Weight formats follow the GGUF block layouts byte for byte. Instances are stateless singletons,
    compared by identity and listed in `minfer_ir.formats.FORMATS` under `name`.
    """

    name: ClassVar[str]
    block_size: ClassVar[int]
    block_bytes: ClassVar[int]

    def row_bytes(self, n: int) -> int:
        """Bytes of a row of `n` elements; raises ValueError when `n` is not a multiple of `block_size`."""
        if n % self.block_size:
            raise ValueError(f"a row of {n} elements is not a whole number of {self.name} blocks of {self.block_size}")
        return n // self.block_size * self.block_bytes

    @abstractmethod
    def decode(self, data: Bytes) -> Floats:
        """Rows of bytes `[..., row_bytes(n)]` uint8 to values `[..., n]` float32."""

    @abstractmethod
    def encode(self, values: Floats) -> Bytes:
        """Values `[..., n]` float32 to rows of bytes `[..., row_bytes(n)]` uint8.

        Raises NotImplementedError for a format that minfer reads but does not write.
        """

    def __repr__(self) -> str:
        return self.name
