"""Elementwise ops, norms and softmax, all in float32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from minfer_kernels.torch_ops.kit import Kit


def add(kit: Kit, attrs: Any, x: Tensor, y: Tensor) -> Tensor:
    """x + y."""
    return x + y


def mul(kit: Kit, attrs: Any, x: Tensor, y: Tensor) -> Tensor:
    """x * y."""
    return x * y


def scale(kit: Kit, attrs: Any, x: Tensor) -> Tensor:
    """x * factor, which is rounded to float32 first."""
    return x * torch.tensor(attrs.factor, dtype=torch.float32, device=x.device)


def silu(kit: Kit, attrs: Any, x: Tensor) -> Tensor:
    """x / (1 + exp(-x))."""
    return x / (1 + torch.exp(-x))


def softmax(kit: Kit, attrs: Any, x: Tensor) -> Tensor:
    """Over the last axis."""
    return torch.softmax(x, dim=-1)


def rms_norm(kit: Kit, attrs: Any, x: Tensor, weight: Tensor) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis: a row, or a head for qk_norm."""
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + attrs.eps) * weight


OPS = {
    "add": add,
    "mul": mul,
    "scale": scale,
    "silu": silu,
    "softmax": softmax,
    "rms_norm": rms_norm,
    "qk_norm": rms_norm,
}
