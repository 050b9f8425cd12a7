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


def make_weight(key: str, fmt: Format, shape: Shape, parts: Sequence[Bytes], device: torch.device) -> GpuWeight:
    """Take a weight in; parts are stacked along their rows. Raises NonFiniteWeightError."""
    if any(fmt.find_nonfinite(p) is not None for p in parts):
        raise NonFiniteWeightError(key)
    if len(shape) > 1:
        raise NotImplementedError("planes")
    values = np.concatenate([fmt.decode(p).reshape(-1) for p in parts]).reshape(shape)
    return GpuWeight(key, fmt, shape, {}, torch.from_numpy(values).to(device))


def weight_bytes(fmt: Format, shape: Shape) -> int:
    """Bytes that `make_weight` would take."""
    return 4 * math.prod(shape)
