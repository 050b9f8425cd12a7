"""Numpy backends that pretend to be stricter than they are, so that passes have something to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from minfer_ir.opspec import WEIGHT_TYPES
from minfer_ir.runtime.numpy_backend import NumpyBackend
from minfer_ir.types import TensorType

K_QUANTS = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
FLOATS = ("F32", "F16", "BF16")


def activation_of(name: str) -> str:
    return "f32" if name in FLOATS else "Q8A256" if name in K_QUANTS else "Q8A32"


class IntegerBackend(NumpyBackend):
    """Wants quantized activations and row-strided operands, like the CPU's tape, but computes with numpy."""

    name = "integer"
    capabilities = replace(
        NumpyBackend.capabilities,
        activation_formats={t: activation_of(t) for t in WEIGHT_TYPES},
        layouts="rows",
    )

    def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
        if op == "matmul" and operands[0].dtype.name != activation_of(operands[1].dtype.name):
            return f"{operands[1].dtype.name} weights take {activation_of(operands[1].dtype.name)} activations"
        return super().supports(op, attrs, out, operands)


class Lacking(NumpyBackend):
    """Has no kernel for the ops in `lacks`."""

    def __init__(self, name: str, *lacks: str) -> None:
        super().__init__()
        self.name = name
        self._lacks = lacks

    def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
        return f"no kernel for {op}" if op in self._lacks else super().supports(op, attrs, out, operands)
