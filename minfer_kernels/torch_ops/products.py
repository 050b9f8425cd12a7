"""Products, lookups, rotation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from minfer_ir.ops.rope import RopeAttrs
from minfer_kernels.torch_ops.kit import Kit


def matmul(kit: Kit, attrs: Any, x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T in the weight's type: float32, or float16 with the result rounded to it."""
    return (x.to(weight.dtype) @ weight.T).float()


def get_rows(kit: Kit, attrs: Any, table: Tensor, ids: Tensor) -> Tensor:
    """table[ids]."""
    return table.index_select(0, ids).float()


def quantize_act(kit: Kit, attrs: Any, x: Tensor) -> Tensor:
    """The value itself: storing it in its format is what rounds it."""
    return x


def rope(kit: Kit, attrs: RopeAttrs, x: Tensor, positions: Tensor, factors: Tensor | None = None) -> Tensor:
    """The first `dims` elements of every head rotated in pairs."""
    table = kit.angles(attrs, factors).index_select(0, positions)
    cos, sin = table[:, None, 0], table[:, None, 1]
    rotated, kept = x[..., : attrs.dims], x[..., attrs.dims :]
    paired = rotated.unflatten(-1, (2, -1) if attrs.pairs == "neox" else (-1, 2))
    a, b = paired.unbind(-2 if attrs.pairs == "neox" else -1)
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-2 if attrs.pairs == "neox" else -1)
    return torch.cat([turned.flatten(-2), kept], dim=-1)


OPS = {"matmul": matmul, "get_rows": get_rows, "quantize_act": quantize_act, "rope": rope}
