"""Norms, softmax, quantization, lookups and copies as launches: a program takes a row, or a piece of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import triton

from minfer_ir.formats.base import Format
from minfer_ir.graph import Node
from minfer_ir.types import TensorType
from minfer_kernels.gpu.emit.elementwise import strides
from minfer_kernels.gpu.emitter import Emit, Emitter, Refusal, most_rows, row_width
from minfer_kernels.gpu.kernels import copy, lookup, norm, quantize

MOST_WIDE = 1 << 16
"""Elements of a row that a program can hold."""
BLOCK = 1024
UNITS = 32


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


def _rows(e: Emitter, node: Node, **sources: Node) -> dict[str, Any]:
    """The operands of kernels over rows of float32: each source and `out`, with the rows and strides of both."""
    at = {name: e.tensor(source) for name, source in sources.items()}
    shared = {"out": e.tensor(node), "rows_at": e.rows_at(node), "width": node.type.shape[-1]}
    return {**at, **shared, **strides(e, **sources, out=node)}


def _rms_norm(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    tile = RowTile.of(node.type.shape[1])
    operands = {**_rows(e, node, x=x), "weight": e.tensor(weight), "eps": node.attrs.eps}
    e.launch("norm.rms_norm", node, norm.rms_norm, (most_rows(node),), tile.warps, **operands, WIDE=tile.wide)


def _add_rms_norm(e: Emitter, node: Node) -> None:
    x, y, weight = e.sources(node)
    width = x.type.shape[1]
    tile, total = RowTile.of(width), e.tensor(node)
    operands = {**_rows(e, node, x=x, y=y), "weight": e.tensor(weight), "eps": node.attrs.eps}
    parts = {"width": width, "total": total[:, :width], "out": total[:, width:]}
    operands |= {**parts, "total_stride": operands["out_stride"]}
    e.launch("norm.add_rms_norm", node, norm.add_rms_norm, (most_rows(node),), tile.warps, **operands, WIDE=tile.wide)


def head_tile(head_dim: int) -> dict[str, Any]:
    """HEADS of WIDE elements: some 1024 of them."""
    wide = triton.next_power_of_2(head_dim)
    return {"HEADS": max(1, BLOCK // wide), "WIDE": wide}


def _qk_norm(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    _, n_heads, head_dim = node.type.shape
    operands = {**_rows(e, node, x=x), "weight": e.tensor(weight), "eps": node.attrs.eps}
    del operands["width"]
    tile = head_tile(head_dim)
    grid = (most_rows(node), triton.cdiv(n_heads, tile["HEADS"]))
    e.launch("norm.qk_norm", node, norm.qk_norm, grid, **operands, n_heads=n_heads, head_dim=head_dim, **tile)


def _softmax(e: Emitter, node: Node) -> None:
    (x,) = e.sources(node)
    operands = _rows(e, node, x=x)
    # A vector of rows has one element a row: the softmax runs over all of them.
    tile = RowTile.of(operands["width"])
    grid = (most_rows(node), row_width(node) // operands["width"])
    e.launch("norm.softmax", node, norm.softmax, grid, tile.warps, **operands, WIDE=tile.wide)


def blocks_of(node: Node) -> dict[str, Any]:
    """BLOCK and SUMS of a node's activation format."""
    assert isinstance(node.type.dtype, Format)
    size = node.type.dtype.block_size
    return {"BLOCK": size, "SUMS": 1 if size == 32 else size // 16}


def _quantized(e: Emitter, node: Node, **sources: Node) -> dict[str, Any]:
    """The operands of kernels that leave 8-bit rows; those count their stride in bytes."""
    return {**_rows(e, node, **sources), "out_stride": e.row_stride(node), **blocks_of(node)}


def _quantize(e: Emitter, node: Node) -> None:
    x, *others = e.sources(node)
    operands, count = _quantized(e, node, x=x, up=others[0] if others else x), BLOCK // blocks_of(node)["BLOCK"]
    grid = (most_rows(node), triton.cdiv(node.type.shape[1], BLOCK))
    site = "quantize.swiglu" if others else "quantize.rows"
    e.launch(site, node, quantize.rows, grid, **operands, GATED=bool(others), BLOCKS=count)


def _rms_norm_quantize(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    tile = RowTile.of(node.type.shape[1], least=blocks_of(node)["BLOCK"])
    operands = {**_quantized(e, node, x=x), "weight": e.tensor(weight), "eps": node.attrs.eps}
    e.launch("quantize.rms_norm", node, quantize.rms_norm, (most_rows(node),), tile.warps, **operands, WIDE=tile.wide)


def _get_rows(e: Emitter, node: Node) -> None:
    table, ids = e.sources(node)
    planes = e.weights[table.id].planes if table.id in e.weights else {}
    operands = {**_rows(e, node), "ids": e.tensor(ids)}
    if "quants" in planes:
        width = operands.pop("width")
        held = {name: planes.get(name, planes["quants"]) for name in ("quants", "high", "scales", "sub")}
        constants = {"K": width, "FORMAT": table.type.dtype.name, "PTX": e.ptx, "UNITS": UNITS}
        grid = (most_rows(node), triton.cdiv(width, 32 * UNITS))
        e.launch("lookup.blocks", node, lookup.blocks, grid, **operands, **held, **constants)
        return
    values = planes.get("values")
    rows = e.tensor(table) if values is None else values
    operands |= {"table": rows, "table_stride": e.row_stride(table) // 4 if values is None else rows.stride(0)}
    grid = (most_rows(node), triton.cdiv(operands["width"], BLOCK))
    e.launch("lookup.floats", node, lookup.floats, grid, **operands, BLOCK=BLOCK)


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


def _too_wide(_: Any, out: TensorType, operands: tuple[TensorType, ...]) -> str | None:
    width = operands[0].shape[-1] if operands[0].shape else 1
    return None if width <= MOST_WIDE else f"a program holds rows of up to {MOST_WIDE} elements, not {width}"


def _too_many_axes(_: Any, out: TensorType, operands: tuple[TensorType, ...]) -> str | None:
    shape = list(operands[0].shape)
    return f"a copy takes up to 4 axes, not {shape}" if len(shape) > 4 else None


SITES = (
    *("norm.rms_norm", "norm.add_rms_norm", "norm.qk_norm", "norm.softmax"),
    *("quantize.rows", "quantize.swiglu", "quantize.rms_norm"),
    *("lookup.blocks", "lookup.floats", "copy.strided"),
)
EMITTERS: dict[str, Emit] = {
    "rms_norm": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "qk_norm": _qk_norm,
    "softmax": _softmax,
    "quantize_act": _quantize,
    "swiglu_quantize": _quantize,
    "rms_norm_quantize": _rms_norm_quantize,
    "get_rows": _get_rows,
    "contiguous": _contiguous,
}
REFUSALS: dict[str, Refusal] = {
    **dict.fromkeys(("rms_norm", "add_rms_norm", "qk_norm", "softmax", "rms_norm_quantize"), _too_wide),
    "contiguous": _too_many_axes,
}
