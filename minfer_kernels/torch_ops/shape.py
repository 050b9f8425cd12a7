"""Views inside a composition, and the contiguous copy. Axis 0 of a row bucket keeps the rows it has."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from minfer_kernels.torch_ops.kit import Kit


def view(kit: Kit, attrs: Any, x: Tensor) -> Tensor:
    """The window from `starts`."""
    return x[tuple(slice(start, start + n) for start, n in zip(attrs.starts, attrs.shape, strict=True))]


def reshape(kit: Kit, attrs: Any, x: Tensor) -> Tensor:
    """The same elements in another shape."""
    return x.reshape(attrs.shape if x.numel() == math.prod(attrs.shape) else (x.shape[0], *attrs.shape[1:]))


def permute(kit: Kit, attrs: Any, x: Tensor) -> Tensor:
    """The axes in another order."""
    return x.permute(attrs.axes)


def contiguous(kit: Kit, attrs: Any, x: Tensor) -> Tensor:
    """The value itself: the program copies it into its window."""
    return x


OPS = {"view": view, "reshape": reshape, "permute": permute, "contiguous": contiguous}
