"""Weights as the CPU backend holds them: in the form that the ops reading them need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats.base import Bytes, Format
from minfer_ir.ops import OPS
from minfer_ir.runtime.backend import NonFiniteWeightError
from minfer_ir.types import Shape
from minfer_kernels.cpu.weights.layouts import layout_of
from minfer_kernels.cpu.weights.packer import WeightPacker
from minfer_kernels.cpu.weights.packing import PackedWeight


@dataclass(frozen=True, slots=True)
class CpuWeight:
    """One registered weight.

    `packed` for matmuls, `rows` (a copy of the file's rows, so nothing depends on the mapped file afterwards) for row
    lookups where there is no packed form, `values` as float32 for everything else. Only what is used exists.
    """

    key: str
    format: Format
    shape: Shape
    packed: PackedWeight | None
    rows: Bytes | None
    values: NDArray[np.float32] | None

    @property
    def nbytes(self) -> int:
        """Bytes of all forms."""
        forms = (self.packed.buffer if self.packed else None, self.rows, self.values)
        return sum(form.nbytes for form in forms if form is not None)

    def __str__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        forms = [
            "" if self.packed is None else f"packed as {self.packed.layout.name}, {self.packed.buffer.nbytes} bytes",
            "" if self.rows is None else f"rows as in the file, {self.rows.nbytes} bytes",
            "" if self.values is None else f"float32 values, {self.values.nbytes} bytes",
        ]
        return f"{self.key} {self.format.name}[{dims}]: {'; '.join(filter(None, forms))}"


def _products(uses: frozenset[str]) -> frozenset[str]:
    return frozenset(op for op in uses if OPS[op].is_product)


def _is_packed(shape: Shape, uses: frozenset[str]) -> bool:
    """Products read matrices packed; the vectors among their operands are biases and the like."""
    return len(shape) > 1 and bool(_products(uses))


def _has_values(shape: Shape, uses: frozenset[str]) -> bool:
    return bool(uses - {"get_rows"} - (_products(uses) if len(shape) > 1 else frozenset()))


def make_weight(
    key: str, fmt: Format, shape: Shape, parts: Sequence[Bytes], uses: frozenset[str], packer: WeightPacker
) -> CpuWeight:
    """A weight in the forms that `uses` (op names) need. Parts are stacked along their rows.

    Raises NonFiniteWeightError for a scale, or value of a float format, that is NaN or infinite.
    """
    packed = packer.pack(key, fmt, parts, shape[-1]) if _is_packed(shape, uses) else None
    as_in_file = packer.copy(key, fmt, parts, shape[-1]) if packed is None and "get_rows" in uses else None
    values = None
    if _has_values(shape, uses):
        if any(fmt.find_nonfinite(p) is not None for p in parts):
            raise NonFiniteWeightError(key)
        values = np.concatenate([fmt.decode(p).reshape(-1) for p in parts]).reshape(shape)
    return CpuWeight(key, fmt, shape, packed, as_in_file, values)


def weight_bytes(fmt: Format, shape: Shape, uses: frozenset[str], rows: int) -> int:
    """Bytes of the forms that `make_weight` would make, without making them."""
    n, k = math.prod(shape[:-1]), shape[-1]
    packed = layout_of(fmt.name, rows).nbytes(n, k) if _is_packed(shape, uses) else 0
    as_in_file = n * fmt.row_bytes(k) if not packed and "get_rows" in uses else 0
    values = 4 * n * k if _has_values(shape, uses) else 0
    return packed + as_in_file + values
