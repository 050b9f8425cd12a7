"""Which types the CPU kernels take, and the reason where they don't."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minfer_ir.ops import OPS
from minfer_ir.types import TensorType
from minfer_kernels.cpu.emit import EMITTERS
from minfer_kernels.cpu.weights.layouts import activation_format


def why_not(op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
    """None when a kernel takes this op on these types, else the reason why none does."""
    if op in OPS and OPS[op].effect in ("leaf", "view"):
        return None
    if op not in EMITTERS:
        return "no kernel"
    special = {"matmul": _matmul, "rope": _rope}.get(op)
    return _axes(op, operands) if special is None else special(*operands)


def _rope(x: TensorType, positions: TensorType, factors: TensorType | None = None) -> str | None:
    if factors is not None and factors.dtype.name == "f32":
        return "frequency factors must be a weight: the table of angles is made before the first step"
    return None


def _axes(op: str, operands: Sequence[TensorType]) -> str | None:
    shape = list(operands[0].shape)
    return f"a copy takes up to 4 axes, not {shape}" if op == "contiguous" and len(shape) > 4 else None


def _matmul(x: TensorType, weight: TensorType) -> str | None:
    wanted = activation_format(weight.dtype.name)
    if x.dtype.name != wanted:
        return f"{weight.dtype.name} weights take {wanted} activations, not {x.dtype.name}"
    return None
