"""Matrix products as launches: streams for few rows, tiles for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import triton

from minfer_ir.formats import ACTIVATION_FORMATS
from minfer_ir.graph import Graph, Node
from minfer_ir.ops import OPS
from minfer_ir.types import TensorType
from minfer_kernels.gpu.emit.operands import RowTile
from minfer_kernels.gpu.emit.quantize import blocks_of
from minfer_kernels.gpu.emitter import Emit, Emitter, Group, Refusal
from minfer_kernels.gpu.kernels.products import finished, integer_tiles, stream, tiles
from minfer_kernels.gpu.kernels.products.choices import (
    MOST_ROWS,
    StreamTile,
    dot_tile,
    integer_tile,
    stream_lanes,
    stream_tile,
)
from minfer_kernels.gpu.planes.layouts import LAYOUTS
from minfer_kernels.gpu.scratch import Shapes, Wants, WantsOf


def activation_format(weight: str) -> str:
    """The 8-bit rows that a few rows' products with a weight format read; "f32" of floats."""
    layout = LAYOUTS[weight]
    if not layout.bits:
        return "f32"
    return "Q8A256" if layout.format.block_size == ACTIVATION_FORMATS["Q8A256"].block_size else "Q8A32"


def planes(e: Emitter, weight: Node, prefix: str = "") -> dict[str, torch.Tensor]:
    """The plane operands of a kernel; the first plane stands in where the format lacks one."""
    held = e.weights[weight.id].planes
    first = next(iter(held.values()))
    return {prefix + name: held.get(name, first) for name in ("quants", "high", "scales", "sub")}


def tile_of(e: Emitter, weight: TensorType, rows: int, together: int | None = None) -> StreamTile:
    """The tile of a stream; in invariant mode the one that any number of rows takes.

    `together`: columns of the result that one program finishes.
    """
    most = MOST_ROWS if e.invariant else rows
    return stream_tile(e.target, weight.dtype.name, weight.shape[1], most, together)


def _product(e: Emitter, node: Node) -> None:
    x, weight, *added = e.sources(node)
    if x.type.shape[0] <= MOST_ROWS or e.invariant:
        _stream(e, node, x, weight, added)
    elif x.type.dtype.name in ACTIVATION_FORMATS:
        _integer_tiles(e, node, x, weight, added)
    else:
        _tiles(e, node, x, weight, added)


def _operands(e: Emitter, node: Node, x: Node, weight: Node, added: Sequence[Node]) -> dict[str, Any]:
    """What both kernels take."""
    out = e.tensor(node)
    return {
        "rows_at": e.rows_at(x),
        **planes(e, weight),
        "y": e.tensor(added[0]) if added else out,
        "out": out,
        "n": weight.type.shape[0],
        "y_stride": e.row_stride(added[0]) // 4 if added else 0,
        "out_stride": e.row_stride(node) // 4,
        "K": weight.type.shape[1],
        "FORMAT": weight.type.dtype.name,
        "ADD": bool(added),
    }


def _rows_to_stream(e: Emitter, x: Node, tile: StreamTile) -> dict[str, Any]:
    """The activations, and the tile of weights that meets them."""
    return {
        "x": e.bytes_at(x),
        "x_stride": e.row_stride(x),
        "ROWS": min(x.type.shape[0], MOST_ROWS),
        "TILE": tile.rows,
        "LANES": tile.lanes,
        "EIGHT_BIT": x.type.dtype.name in ACTIVATION_FORMATS,
        "DP4A": e.ptx,
    }


def _turns(x: Node) -> int:
    """How often the weights pass by."""
    return triton.cdiv(x.type.shape[0], MOST_ROWS)


def _stream(e: Emitter, node: Node, x: Node, weight: Node, added: Sequence[Node]) -> None:
    n = weight.type.shape[0]
    tile = tile_of(e, weight.type, x.type.shape[0])
    e.launch(
        "products.stream",
        node,
        stream.product,
        (triton.cdiv(n, tile.rows), _turns(x)),
        warps=tile.warps,
        **_rows_to_stream(e, x, tile),
        **_operands(e, node, x, weight, added),
    )


def _tiles(e: Emitter, node: Node, x: Node, weight: Node, added: Sequence[Node]) -> None:
    rows = x.type.shape[0]
    tile = dot_tile(e.target, weight.type.dtype.name, rows)
    e.launch(
        "products.tiles",
        node,
        tiles.product,
        (triton.cdiv(rows, tile.rows), triton.cdiv(weight.type.shape[0], tile.columns)),
        warps=tile.warps,
        stages=tile.stages,
        x=e.tensor(x),
        x_stride=e.row_stride(x) // 4,
        TILE_ROWS=tile.rows,
        TILE=tile.columns,
        UNITS=tile.units,
        PTX=e.ptx,
        **_operands(e, node, x, weight, added),
    )


def _integer_tiles(e: Emitter, node: Node, x: Node, weight: Node, added: Sequence[Node]) -> None:
    rows = x.type.shape[0]
    tile = integer_tile(e.target, weight.type.dtype.name, rows)
    e.launch(
        "products.integer_tiles",
        node,
        integer_tiles.product,
        (triton.cdiv(rows, tile.rows), triton.cdiv(weight.type.shape[0], tile.columns)),
        warps=tile.warps,
        stages=tile.stages,
        x=e.bytes_at(x),
        x_stride=e.row_stride(x),
        TILE_ROWS=tile.rows,
        TILE=tile.columns,
        PTX=e.ptx,
        **_operands(e, node, x, weight, added),
    )


def _swiglu(e: Emitter, node: Node) -> None:
    operands = _gated(e, node)
    n, tile = operands["n"], operands.pop("tile")
    shared = {"warps": tile.warps, **operands, "out_stride": e.row_stride(node) // 4}
    grid = (triton.cdiv(n, tile.rows), _turns(e.sources(node)[0]))
    e.launch("products.swiglu", node, stream.swiglu, grid, **shared)


def _swiglu_quantize(e: Emitter, node: Node) -> None:
    blocks, rows = blocks_of(node), node.type.shape[0]
    operands = _gated(e, node, blocks["BLOCK"])
    n, tile = operands["n"], operands.pop("tile")
    e.launch(
        "products.swiglu_quantize",
        node,
        finished.swiglu_quantize,
        (triton.cdiv(n, tile.rows),),
        warps=tile.warps,
        **operands,
        values=e.scratch(4 * rows * n).view(torch.float32),
        counters=e.counters(n // blocks["BLOCK"]),
        out_stride=e.row_stride(node),
        **blocks,
    )


def _unquantized(e: Shapes, node: Node) -> Wants:
    """The gated values, and who has come of those that make a block."""
    rows, n = node.type.shape
    return Wants((4 * rows * n,), (n // blocks_of(node)["BLOCK"],))


def _gated(e: Emitter, node: Node, together: int | None = None) -> dict[str, Any]:
    """What both kernels of gated products take; the tile is "tile"."""
    x, gate, up = e.sources(node)
    n, k = gate.type.shape
    tile = tile_of(e, gate.type, x.type.shape[0], together)
    return {
        "tile": tile,
        "x": e.bytes_at(x),
        "rows_at": e.rows_at(x),
        **planes(e, gate),
        **planes(e, up, "up_"),
        "out": e.tensor(node),
        "n": n,
        "x_stride": e.row_stride(x),
        "K": k,
        "FORMAT": gate.type.dtype.name,
        "UP_FORMAT": up.type.dtype.name,
        "ROWS": min(x.type.shape[0], MOST_ROWS),
        "TILE": tile.rows,
        "LANES": tile.lanes,
        "EIGHT_BIT": x.type.dtype.name in ACTIVATION_FORMATS,
        "DP4A": e.ptx,
    }


def residual_and_norm(graph: Graph, nodes: Sequence[Node], i: int) -> int:
    """A product of very few rows plus a residual, and the norm of the sum, quantized or not."""
    pair = nodes[i : i + 2]
    if len(pair) < 2 or pair[0].op != "matmul_add" or pair[1].op not in ("rms_norm", "rms_norm_quantize"):
        return 0
    total, (y, x, weight) = pair[0], (pair[0].operand(graph, "y"), *(graph[s] for s in pair[1].sources))
    plain_vector = weight.type.rows is None and y.type.shape == total.type.shape
    few, narrow = total.type.shape[0] <= NORMED_ROWS, total.type.shape[1] <= NORMED_WIDTH
    return 2 if x is total and plain_vector and few and narrow else 0


def emit_residual_and_norm(e: Emitter, nodes: Sequence[Node]) -> None:
    """The product, its sum and the norm in one launch, whose last program norms the rows."""
    total, normed = nodes
    x, weight, y = e.sources(total)
    n = weight.type.shape[0]
    tile = tile_of(e, weight.type, x.type.shape[0], together=n)
    quantized = normed.op == "rms_norm_quantize"
    blocks: dict[str, Any] = blocks_of(normed) if quantized else {"BLOCK": 0, "SUMS": 1}
    operands = _operands(e, total, x, weight, [y])
    del operands["ADD"]
    e.launch(
        "products.fused_norm",
        total,
        finished.product_norm,
        (triton.cdiv(n, tile.rows),),
        warps=tile.warps,
        **_rows_to_stream(e, x, tile),
        **operands,
        weight=e.tensor(e.sources(normed)[1]),
        eps=normed.attrs.eps,
        normed=e.tensor(normed),
        normed_stride=e.row_stride(normed) // (1 if quantized else 4),
        counter=e.counters(1),
        **blocks,
        WIDE=RowTile.of(n, least=max(16, blocks["BLOCK"])).wide,
    )


NORMED_ROWS = 4
"""Rows that one program norms while the others have ended; more are normed side by side."""
NORMED_WIDTH = 8192


STREAMED = ("matmul", "matmul_add", "matmul_swiglu")
"""Products that a stream makes of any number of rows, in turns."""


def in_turns(op: str, operands: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """The operands that a product's kernel sees at a time where every row takes the stream's."""
    x, *others = operands
    if op not in STREAMED or x.shape[0] <= MOST_ROWS:
        return tuple(operands)
    return replace(x, shape=(MOST_ROWS, *x.shape[1:])), *others


def why_not(op: str, operands: Sequence[TensorType], many: bool) -> str | None:
    """Why no product kernel takes these; `many`: there is one for more than MOST_ROWS rows."""
    x, weights = operands[0], list(OPS[op].weight_operands(operands))
    if x.shape[0] > MOST_ROWS and not many:
        return f"only products of up to {MOST_ROWS} rows finish their results, not of {x.shape[0]}"
    for weight in weights:
        wanted = activation_format(weight.dtype.name)
        if x.dtype.name not in ("f32", wanted):
            return f"{weight.dtype.name} weights take {wanted} or f32 activations, not {x.dtype.name}"
    lanes = {stream_lanes(w.dtype.name, w.shape[1]) for w in weights}
    return "its weights are added up in different lanes" if len(lanes) > 1 else None


def _refusal(op: str, many: bool) -> Refusal:
    return lambda _, out, operands: why_not(op, operands, many)


SITES = (
    "products.stream",
    "products.tiles",
    "products.integer_tiles",
    "products.swiglu",
    "products.swiglu_quantize",
    "products.fused_norm",
)
GROUPS = (Group("fused_norm", residual_and_norm, emit_residual_and_norm, wants=lambda e, nodes: Wants(counters=(1,))),)
WANTS: Mapping[str, WantsOf] = {"matmul_swiglu_quantize": _unquantized}
EMITTERS: dict[str, Emit] = {
    "matmul": _product,
    "matmul_add": _product,
    "matmul_swiglu": _swiglu,
    "matmul_swiglu_quantize": _swiglu_quantize,
}
REFUSALS: Mapping[str, Refusal] = {
    "matmul": _refusal("matmul", True),
    "matmul_add": _refusal("matmul_add", True),
    "matmul_swiglu": _refusal("matmul_swiglu", False),
    "matmul_swiglu_quantize": _refusal("matmul_swiglu_quantize", False),
}
