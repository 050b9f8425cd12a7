"""Copies of strided values as launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton

from minfer_ir.graph import Node
from minfer_ir.types import TensorType
from minfer_kernels.gpu.emit.operands import BLOCK
from minfer_kernels.gpu.emitter import Emit, Emitter, Refusal
from minfer_kernels.gpu.kernels import copy


def _contiguous(e: Emitter, node: Node) -> None:
    (x,) = e.sources(node)
    shape, steps = _four_axes(node, [s // 4 for s in e.binding.values[x.id].strides])
    width = shape[1] * shape[2] * shape[3]
    e.launch(
        "copy.strided",
        node,
        copy.strided,
        (shape[0], triton.cdiv(width, BLOCK)),
        x=e.tensor(x),
        out=e.tensor(node),
        rows_at=e.rows_at(node),
        width=width,
        n2=shape[2],
        n3=shape[3],
        x_stride=steps[0],
        out_stride=width,
        stride1=steps[1],
        stride2=steps[2],
        stride3=steps[3],
        BLOCK=BLOCK,
    )


def _four_axes(node: Node, steps: Sequence[int]) -> tuple[list[int], list[int]]:
    """Shape and strides with unit axes behind the rows; a vector that isn't rows is one row."""
    shape = list(node.type.shape)
    if len(shape) == 1 and node.type.rows is None:
        shape, steps = [1, *shape], [0, *steps]
    more = 4 - len(shape)
    return [shape[0], *[1] * more, *shape[1:]], [steps[0], *[0] * more, *steps[1:]]


def _too_many_axes(_: Any, out: TensorType, operands: tuple[TensorType, ...]) -> str | None:
    shape = list(operands[0].shape)
    return f"a copy takes up to 4 axes, not {shape}" if len(shape) > 4 else None


SITES = ("copy.strided",)
EMITTERS: dict[str, Emit] = {"contiguous": _contiguous}
REFUSALS: dict[str, Refusal] = {"contiguous": _too_many_axes}
