"""Scalar element types.

A tensor's element type is a `DType` (one number) or a `Format` (a block of numbers sharing scales,
`minfer_ir.formats`). Both answer `row_bytes(n)`, so byte arithmetic never asks which one it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar element type: its name, size in bytes and the numpy dtype that stores it.

    `bf16` has no numpy counterpart and is stored as `uint16` bit patterns.
    """

    name: str
    itemsize: int
    storage: np.dtype[np.generic]

    def row_bytes(self, n: int) -> int:
        """Bytes of `n` consecutive elements."""
        return n * self.itemsize

    def __repr__(self) -> str:
        return self.name


F32 = DType("f32", 4, np.dtype(np.float32))
F16 = DType("f16", 2, np.dtype(np.float16))
BF16 = DType("bf16", 2, np.dtype(np.uint16))
I8 = DType("i8", 1, np.dtype(np.int8))
U8 = DType("u8", 1, np.dtype(np.uint8))
I32 = DType("i32", 4, np.dtype(np.int32))
I64 = DType("i64", 8, np.dtype(np.int64))

DTYPES: dict[str, DType] = {d.name: d for d in (F32, F16, BF16, I8, U8, I32, I64)}
