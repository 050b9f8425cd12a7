"""Zero-copy views, and the copy that makes one contiguous."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minfer_ir.dtypes import DType
from minfer_ir.ops.elementwise import rows
from minfer_ir.opspec import Array, NoAttrs, Op, OpCase, Operand, OpError
from minfer_ir.types import Shape, Strides, TensorType


class ViewOp(Op):
    """Shared by the views: they move no data and name a window of their source's storage."""

    effect = "view"
    operands = (Operand("x", "*", ("f32", "f16", "i32", "activation")),)


class View(ViewOp):
    """A window: `shape` elements from `starts` along each axis."""

    name = "view"

    @dataclass(frozen=True, slots=True)
    class Attrs:
        """Same rank as the source; the window lies inside it."""

        starts: Shape
        shape: Shape

    def infer(self, attrs: Attrs, x: TensorType) -> TensorType:
        """The window's type; rows stay rows only when the window keeps all of them."""
        inside = len(attrs.starts) == len(attrs.shape) == len(x.shape) and all(
            start >= 0 and n > 0 and start + n <= dim
            for start, n, dim in zip(attrs.starts, attrs.shape, x.shape, strict=False)
        )
        if not inside:
            raise OpError(f"view: window {attrs.shape} at {attrs.starts} isn't inside {x.shape}")
        if not isinstance(x.dtype, DType) and attrs.shape[1:] != x.shape[1:]:
            raise OpError(f"view: rows of {x.dtype.name} can't be cut; asked for {attrs.shape} of {x.shape}")
        if x.rows and attrs.shape[0] != x.shape[0]:
            raise OpError(f"view: axis 0 counts {x.rows} rows and can't be cut; asked for {attrs.shape} of {x.shape}")
        return TensorType(attrs.shape, x.dtype, x.rows)

    def reference(self, attrs: Attrs, x: Array) -> Array:
        """A numpy slice; axis 0 of a row bucket keeps the rows it has."""
        window = [slice(s, s + n) for s, n in zip(attrs.starts, attrs.shape, strict=True)]
        return x[tuple(window)]

    def alias(self, attrs: Attrs, source: TensorType, strides: Strides) -> tuple[int, Strides]:
        """The offset of the first element; the strides stay."""
        return sum(s * step for s, step in zip(attrs.starts, strides, strict=True)), strides

    def cases(self) -> Sequence[OpCase]:
        """A column window and the whole."""
        return [
            OpCase("columns", (rows(3, 24),), {"starts": [0, 5], "shape": [3, 7]}),
            OpCase("whole", (rows(2, 8),), {"starts": [0, 0], "shape": [2, 8]}),
        ]


class Reshape(ViewOp):
    """The same elements in another shape."""

    name = "reshape"

    @dataclass(frozen=True, slots=True)
    class Attrs:
        """As many elements as the source."""

        shape: Shape

    def infer(self, attrs: Attrs, x: TensorType) -> TensorType:
        """The new shape; a row bucket keeps its axis 0."""
        if math.prod(attrs.shape) != x.size or any(d < 1 for d in attrs.shape):
            raise OpError(f"reshape: {x.shape} has {x.size} elements, {attrs.shape} has {math.prod(attrs.shape)}")
        if x.rows and attrs.shape[:1] != x.shape[:1]:
            raise OpError(f"reshape: axis 0 counts {x.rows} rows and must stay {x.shape[0]}, asked for {attrs.shape}")
        if not isinstance(x.dtype, DType) and attrs.shape[-1] != x.shape[-1]:
            raise OpError(f"reshape: rows of {x.dtype.name} must stay {x.shape[-1]} long, asked for {attrs.shape}")
        return TensorType(attrs.shape, x.dtype, x.rows)

    def reference(self, attrs: Attrs, x: Array) -> Array:
        """A numpy reshape; axis 0 of a row bucket keeps the rows it has."""
        return x.reshape(attrs.shape if x.size == math.prod(attrs.shape) else (x.shape[0], *attrs.shape[1:]))

    def alias(self, attrs: Attrs, source: TensorType, strides: Strides) -> tuple[int, Strides] | None:
        """Strides after merging and splitting axes, or None when the merged axes don't lie evenly."""
        merged = regroup(source.shape, strides, attrs.shape)
        return None if merged is None else (0, merged)

    def cases(self) -> Sequence[OpCase]:
        """Split and merge of the inner axes."""
        return [
            OpCase("split", (rows(3, 24),), {"shape": [3, 2, 12]}),
            OpCase("merge", (rows(3, 2, 12),), {"shape": [3, 24]}),
        ]


class Permute(ViewOp):
    """The axes in another order."""

    name = "permute"

    @dataclass(frozen=True, slots=True)
    class Attrs:
        """`axes[i]` is the source axis that becomes axis i."""

        axes: tuple[int, ...]

    def infer(self, attrs: Attrs, x: TensorType) -> TensorType:
        """The permuted shape; axis 0 of a row bucket stays in front."""
        if sorted(attrs.axes) != list(range(len(x.shape))):
            raise OpError(f"permute: axes {attrs.axes} aren't a permutation of {len(x.shape)} axes")
        if (x.rows and attrs.axes[0] != 0) or (not isinstance(x.dtype, DType) and attrs.axes[-1] != len(x.shape) - 1):
            raise OpError(f"permute: axes {attrs.axes} would move the row axis of {x}")
        return TensorType(tuple(x.shape[a] for a in attrs.axes), x.dtype, x.rows)

    def reference(self, attrs: Attrs, x: Array) -> Array:
        """A numpy transpose."""
        return np.transpose(x, attrs.axes)

    def alias(self, attrs: Attrs, source: TensorType, strides: Strides) -> tuple[int, Strides]:
        """The strides in the new order."""
        return 0, tuple(strides[a] for a in attrs.axes)

    def cases(self) -> Sequence[OpCase]:
        """Inner axes swapped."""
        return [OpCase("heads_last", (rows(3, 2, 12),), {"axes": [0, 2, 1]})]


class Contiguous(Op):
    """A contiguous copy of a strided view, for consumers that need one."""

    name = "contiguous"
    operands = (Operand("x", "*"),)

    def infer(self, attrs: NoAttrs, x: TensorType) -> TensorType:
        """The type of `x`."""
        return x

    def reference(self, attrs: NoAttrs, x: Array) -> Array:
        """A copy in C order."""
        return np.ascontiguousarray(x).copy()

    def cases(self) -> Sequence[OpCase]:
        """Two and three axes."""
        return [OpCase("2d", (rows(3, 17),), {}), OpCase("3d", (rows(3, 2, 12),), {})]


def regroup(shape: Shape, strides: Strides, new_shape: Shape) -> Strides | None:
    """Byte strides of `new_shape` over the same storage, or None when an axis can't be expressed with one stride."""
    runs = _even_runs(shape, strides)
    left, step = 1, strides[-1] if strides else 0
    out: list[int] = []
    for axis, dim in reversed(list(enumerate(new_shape))):
        if dim == 1:
            # No element lies a step along this axis; the contiguous stride keeps equal layouts equal.
            out.append(out[-1] * new_shape[axis + 1] if out else step)
            continue
        if left == 1:
            left, step = runs.pop()
        if left % dim:
            return None
        out.append(step)
        left, step = left // dim, step * dim
    return tuple(reversed(out))


def _even_runs(shape: Shape, strides: Strides) -> list[tuple[int, int]]:
    """(elements, byte stride) of maximal runs of axes that lie evenly, unit axes left out."""
    runs: list[tuple[int, int]] = []
    for dim, stride in zip(shape, strides, strict=True):
        if dim == 1:
            continue
        if runs and runs[-1][1] == stride * dim:
            runs[-1] = (runs[-1][0] * dim, stride)
        else:
            runs.append((dim, stride))
    return runs
