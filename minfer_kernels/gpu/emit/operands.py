"""What the emitters of kernels over rows share: their operands, and how a program holds a whole row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton

from minfer_ir.graph import Node
from minfer_ir.types import TensorType
from minfer_kernels.gpu.emitter import Emitter

MOST_WIDE = 1 << 14
"""Elements of a row that a program can hold in its registers: sm_90 spills 56 bytes a thread at twice as many."""
BLOCK = 1024
"""Elements of a piece of a row."""


@dataclass(frozen=True, slots=True)
class RowTile:
    """How a program holds a whole row of `wide` elements, a power of two."""

    wide: int
    warps: int

    @classmethod
    def of(cls, width: int, least: int = 16) -> RowTile:
        """16 elements a thread, in up to 16 warps."""
        wide = triton.next_power_of_2(max(width, least))
        return cls(wide, min(16, max(1, wide // 512)))


def strides(e: Emitter, **nodes: Node) -> dict[str, Any]:
    """`NAME_stride` of float32 values: elements between their rows."""
    return {f"{name}_stride": e.row_stride(node) // 4 for name, node in nodes.items()}


def row_operands(e: Emitter, node: Node, **sources: Node) -> dict[str, Any]:
    """The operands of kernels over rows of float32: each source and `out`, with the rows and strides of both."""
    at = {name: e.tensor(source) for name, source in sources.items()}
    shared = {"out": e.tensor(node), "rows_at": e.rows_at(node), "width": node.type.shape[-1]}
    return {**at, **shared, **strides(e, **sources, out=node)}


def too_wide(_: Any, out: TensorType, operands: tuple[TensorType, ...]) -> str | None:
    """The refusal of kernels that hold a whole row."""
    width = operands[0].shape[-1] if operands[0].shape else 1
    return None if width <= MOST_WIDE else f"a program holds rows of up to {MOST_WIDE} elements, not {width}"
