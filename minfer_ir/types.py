"""The type of a value: shape, element type, and whether axis 0 counts rows of a forward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from minfer_ir.dtypes import DType
from minfer_ir.formats.base import Format

ElementType = DType | Format
Shape = tuple[int, ...]
Strides = tuple[int, ...]

RowAxis = Literal["token", "output"]
"""What axis 0 counts: the rows of the forward, or the rows whose output was asked for.

Both are buckets: the type holds the bucket, the input `n_rows` holds the actual numbers.
"""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape in numpy order, element type, and the meaning of axis 0.

    `rows` is None for a value whose axis 0 is not a row bucket (weights, KV regions, tables).
    """

    shape: Shape
    dtype: ElementType
    rows: RowAxis | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the contiguous value."""
        if not self.shape:
            return self.dtype.row_bytes(1)
        return math.prod(self.shape[:-1]) * self.dtype.row_bytes(self.shape[-1])

    @property
    def strides(self) -> Strides:
        """Byte strides of the contiguous value.

        The last stride of a block format is 0: its elements have no address of their own.
        """
        if not self.shape:
            return ()
        inner = self.dtype.itemsize if isinstance(self.dtype, DType) else 0
        strides, step = [inner], self.dtype.row_bytes(self.shape[-1])
        for dim in reversed(self.shape[1:-1]):
            strides.append(step)
            step *= dim
        if len(self.shape) > 1:
            strides.append(step)
        return tuple(reversed(strides))

    def __str__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        return f"{self.dtype.name}[{dims}]" + (f" rows={self.rows}" if self.rows else "")


def element_type(name: str | ElementType) -> ElementType:
    """The scalar or block format called `name` (itself, when it is one); raises ValueError listing the known names."""
    if not isinstance(name, str):
        return name
    from minfer_ir.dtypes import DTYPES
    from minfer_ir.formats import CELL_FORMATS, FORMATS

    found = DTYPES.get(name) or FORMATS.get(name) or CELL_FORMATS.get(name)
    if found is None:
        raise ValueError(f"unknown element type {name!r}; known: {', '.join([*DTYPES, *FORMATS, *CELL_FORMATS])}")
    return found
