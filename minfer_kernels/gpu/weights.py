"""Weights as the GPU backend holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from minfer_ir.formats.base import Bytes, Format
from minfer_ir.graph import Node
from minfer_ir.runtime.backend import NonFiniteWeightError
from minfer_ir.types import Shape
from minfer_kernels.gpu.planes.layouts import LAYOUTS
from minfer_kernels.gpu.planes.packing import matrix_bytes, stacked
from minfer_kernels.tensors.buffers import TORCH_TYPES


@dataclass(frozen=True, slots=True)
class GpuWeight:
    """One registered weight: `planes` of a matrix by name, `values` (float32) of a vector."""

    key: str
    format: Format
    shape: Shape
    planes: Mapping[str, torch.Tensor]
    values: torch.Tensor | None

    @property
    def nbytes(self) -> int:
        """Bytes of all forms."""
        held = [*self.planes.values(), *(() if self.values is None else (self.values,))]
        return sum(t.numel() * t.element_size() for t in held)

    def values_of(self, node: Node) -> torch.Tensor:
        """The float32 values, which a vector has."""
        assert self.values is not None, f"{node.name} is a matrix, held as planes"
        return self.values

    def __str__(self) -> str:
        kind = "values f32" if self.values is not None else LAYOUTS[self.format.name]
        return f"{self.key} {self.format.name}{list(self.shape)} {self.nbytes} bytes: {kind}"


def make_weight(key: str, fmt: Format, shape: Shape, parts: Sequence[Bytes], device: torch.device) -> GpuWeight:
    """Take a weight in; parts are stacked along their rows. Raises NonFiniteWeightError."""
    if any(fmt.find_nonfinite(p) is not None for p in parts):
        raise NonFiniteWeightError(key)
    if len(shape) > 1:
        return GpuWeight(key, fmt, shape, _planes(fmt, parts, device), None)
    values = np.concatenate([fmt.decode(p).reshape(-1) for p in parts]).reshape(shape)
    return GpuWeight(key, fmt, shape, {}, torch.from_numpy(values).to(device))


def weight_bytes(fmt: Format, shape: Shape) -> int:
    """Bytes that `make_weight` would take."""
    if len(shape) > 1:
        return matrix_bytes(fmt, math.prod(shape[:-1]), shape[-1])
    return 4 * math.prod(shape)


def _planes(fmt: Format, parts: Sequence[Bytes], device: torch.device) -> dict[str, torch.Tensor]:
    rows = [p.reshape(-1, p.shape[-1]) for p in parts]
    types = {plane.name: plane.dtype for plane in LAYOUTS[fmt.name].planes}
    arrays = stacked(fmt, rows)
    # bfloat16 comes as its bits: numpy has no such type.
    return {
        name: torch.from_numpy(a.view(np.int16) if types[name] == "bf16" else a)
        .view(TORCH_TYPES[types[name]])
        .to(device)
        for name, a in arrays.items()
    }
