"""Windows of a storage: which bytes a value occupies, and whether two values share any."""

from __future__ import annotations

from dataclasses import dataclass

from minfer_ir.dtypes import DType
from minfer_ir.types import Strides, TensorType


class PlanError(ValueError):
    """A graph and splits that no memory plan exists for; the message names the nodes and backends."""


@dataclass(frozen=True, slots=True)
class Window:
    """A value of type `kind` whose first byte lies `offset` bytes into its storage, walked with byte `strides`."""

    kind: TensorType
    offset: int
    strides: Strides

    @property
    def length(self) -> int:
        """Bytes from the first to the last byte, gaps included."""
        return span_bytes(self.kind, self.strides, 0)

    @property
    def is_contiguous(self) -> bool:
        """True when the bytes follow each other without gaps, in C order."""
        return _steps(self.kind, self.strides) == _steps(self.kind, self.kind.strides)

    @property
    def has_plain_rows(self) -> bool:
        """True when only axis 0 may have gaps: every row on its own is contiguous."""
        return _steps(self.kind, self.strides, 1) == _steps(self.kind, self.kind.strides, 1)

    def same_elements(self, other: Window) -> bool:
        """True when element i of both is the same bytes, for every i."""
        return (
            self.offset == other.offset
            and self.kind.dtype is other.kind.dtype
            and _steps(self.kind, self.strides) == _steps(other.kind, other.strides)
        )

    def overlaps(self, other: Window) -> bool:
        """False only when no byte belongs to both.

        Exact for windows that are column ranges of one row block, such as the halves of a gate|up buffer;
        otherwise the spans from first to last byte decide.
        """
        if self.offset + self.length <= other.offset or other.offset + other.length <= self.offset:
            return False
        row = self.strides[0] if len(self.kind.shape) > 1 else 0
        if row <= 0 or len(other.kind.shape) <= 1 or other.strides[0] != row:
            return True
        mine, theirs = self._columns(row), other._columns(row)
        if max(mine[1], theirs[1]) > row:
            return True
        return mine[0] < theirs[1] and theirs[0] < mine[1]

    def _columns(self, row: int) -> tuple[int, int]:
        """First and one-past-last byte within a row of `row` bytes."""
        start = self.offset % row
        return start, start + span_bytes(self.kind, self.strides, 1)


def span_bytes(kind: TensorType, strides: Strides, first_axis: int) -> int:
    """Bytes from the first to the last byte over the axes from `first_axis` on."""
    if 0 in kind.shape:
        return 0
    if not kind.shape:
        return kind.nbytes
    *outer, last = kind.shape
    reach = sum((d - 1) * s for d, s in zip(outer[first_axis:], strides[first_axis:-1], strict=True))
    if first_axis >= len(kind.shape):
        return kind.dtype.row_bytes(1)
    if isinstance(kind.dtype, DType):
        return reach + (last - 1) * strides[-1] + kind.dtype.itemsize
    return reach + kind.dtype.row_bytes(last)


def _steps(kind: TensorType, strides: Strides, first_axis: int = 0) -> list[tuple[int, int]]:
    """(dim, stride) of the axes that move at all."""
    return [p for p in list(zip(kind.shape, strides, strict=True))[first_axis:] if p[0] != 1]
