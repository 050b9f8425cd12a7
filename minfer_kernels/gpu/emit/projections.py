"""Products of few rows that leave as heads or go into KV cells, each a segment that others may share a launch with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton

from minfer_ir.formats import ACTIVATION_FORMATS
from minfer_ir.graph import Graph, Node
from minfer_ir.ops.projection import HeadsAttrs
from minfer_kernels.gpu.emit.products import planes, tile_of, why_not
from minfer_kernels.gpu.emit.rope import angles, computed_angles
from minfer_kernels.gpu.emitter import Emit, Emitter, Group, Refusal
from minfer_kernels.gpu.kernels import cells
from minfer_kernels.gpu.kernels.products import finished, projection
from minfer_kernels.gpu.kernels.products.choices import MOST_ROWS, stream_lanes
from minfer_kernels.gpu.scratch import Shapes, Wants, WantsOf

WHOLE_HEADS = (32, 64, 128, 256)
"""Head sizes whose columns are finished head by head; of others all heads are, by one program."""
STORED_COLUMNS = 64


@dataclass(frozen=True, slots=True)
class Segment:
    """One product: its programs, warps, and operands as `finished.project` names them."""

    programs: int
    warps: int
    operands: Mapping[str, Any]


def segment(e: Emitter, node: Node) -> Segment:
    """A product's part of a launch; computed frequency factors take a launch before."""
    named = dict(node.operands(e.graph))
    x, weight = named["x"], named["weight"]
    n, k = weight.type.shape
    rows, fmt = x.type.shape[0], weight.type.dtype.name
    plain = "region" not in named and not isinstance(node.attrs, HeadsAttrs)
    heads = _heads(node)
    group = 0 if plain else _group(heads[2], n)
    tile = tile_of(e, weight.type, rows, group or None)
    values = e.tensor(node) if plain else e.scratch(4 * rows * n).view(torch.float32)
    bias = named.get("bias") or (named.get("y") if plain else None)
    operands = {
        **planes(e, weight),
        "bias": values if bias is None else e.tensor(bias),
        "values": values,
        "values_stride": e.row_stride(node) // 4 if plain else n,
        "n": n,
        "K": k,
        "FORMAT": fmt,
        "TILE": tile.rows,
        "LANES": tile.lanes,
        "ADD": bias is not None,
        **_finish(e, node, named, heads, group, values),
    }
    return Segment(triton.cdiv(n, tile.rows), tile.warps, operands)


def _finish(
    e: Emitter, node: Node, named: Mapping[str, Node], heads: tuple[int, ...], group: int, values: torch.Tensor
) -> dict[str, Any]:
    """What follows the product, for `group` columns at a time. Any pointer stands for an operand that isn't there."""
    head_dim, n = heads[2], named["weight"].type.shape[0]
    weight, region = named.get("norm_weight"), named.get("region")
    counters = values if not group else e.counters(triton.cdiv(n, group))
    return {
        **_rotation(e, node, named, values),
        "weight": values if weight is None else e.tensor(weight),
        "eps": getattr(node.attrs, "eps", 0.0),
        "NORM": weight is not None,
        "region": values if region is None else e.bytes_at(region),
        "cells": values if region is None else e.tensor(named["cells"]),
        "cell_bytes": 0 if region is None else e.row_stride(region),
        "LAYOUT": finished.NO_CELLS.value if region is None else cells.LAYOUTS[region.type.dtype.name],
        "out": values if region is not None else e.tensor(node),
        "out_stride": 0 if region is not None else e.row_stride(node) // 4,
        "counters": counters,
        "GROUP": group,
        "HEAD_DIM": head_dim,
        "HEADS": 1 if group == head_dim else triton.next_power_of_2(heads[1]),
        "WIDE": triton.next_power_of_2(head_dim),
        "BLOCKS": triton.next_power_of_2(max(1, triton.cdiv(group, 32))),
    }


def _heads(node: Node) -> tuple[int, ...]:
    """Rows, heads and their size; pieces of a row that isn't cut into heads."""
    return node.attrs.heads if isinstance(node.attrs, HeadsAttrs) else (0, 1, STORED_COLUMNS)


def _group(head_dim: int, n: int) -> int:
    """Columns that one program finishes together."""
    return head_dim if head_dim in WHOLE_HEADS else n


def _unfinished(e: Shapes, node: Node) -> Wants:
    """The product's values, and who has come of those that make a group of columns; angles where they're computed."""
    x, n = node.operand(e.graph, "x"), node.operand(e.graph, "weight").type.shape[0]
    rows = x.type.shape[0]
    own = Wants((4 * rows * n,), (triton.cdiv(n, _group(_heads(node)[2], n)),))
    return Wants.together((own, computed_angles(e, node, rows)))


def _rotation(e: Emitter, node: Node, named: Mapping[str, Node], values: torch.Tensor) -> dict[str, Any]:
    if not isinstance(node.attrs, HeadsAttrs):
        nothing = {"positions": values, "table": values, "PAIRS": "none", "BY_ROW": False}
        return {**nothing, "DIMS": 2, "HALF": 1, "REST": 1}
    given = angles(e, node, named["x"].type.shape[0])
    dims, head_dim = given.pop("dims"), node.attrs.heads[2]
    del given["rows_at"]
    rest = triton.next_power_of_2(max(1, head_dim - dims))
    return {**given, "DIMS": dims, "HALF": triton.next_power_of_2(dims // 2), "REST": rest}


def shared_operands(e: Emitter, x: Node) -> dict[str, Any]:
    """What the products of one launch have in common."""
    return {
        "x": e.bytes_at(x),
        "rows_at": e.rows_at(x),
        "x_stride": e.row_stride(x),
        "ROWS": x.type.shape[0],
        "EIGHT_BIT": x.type.dtype.name in ACTIVATION_FORMATS,
        "DP4A": e.ptx,
    }


def _projection(e: Emitter, node: Node) -> None:
    part = segment(e, node)
    x = node.operand(e.graph, "x")
    operands = {**shared_operands(e, x), **part.operands}
    e.launch("projections.one", node, projection.one, (part.programs,), part.warps, **operands)


def emit_three(e: Emitter, nodes: Sequence[Node]) -> None:
    """Three products over the same activations in one launch: queries, keys and values."""
    parts = [segment(e, node) for node in nodes]
    operands = shared_operands(e, nodes[0].operand(e.graph, "x"))
    for letter, part in zip("abc", parts, strict=True):
        operands |= {f"{letter}_{name}": value for name, value in part.operands.items() if not name.isupper()}
        operands |= {f"{letter.upper()}_{name}": value for name, value in part.operands.items() if name.isupper()}
    for name in ("K", "LANES"):
        operands[name] = operands.pop(f"A_{name}")
        del operands[f"B_{name}"], operands[f"C_{name}"]
    first, second, third = (part.programs for part in parts)
    operands |= {"first": first, "second": first + second}
    e.launch("projections.fused_qkv", nodes[0], projection.three, (first + second + third,), parts[0].warps, **operands)


def siblings(graph: Graph, nodes: Sequence[Node], i: int) -> int:
    """Three products of few rows over one value, of equal tiles, none of which reads another."""
    three = nodes[i : i + 3]
    if len(three) < 3 or any(node.op not in GROUPED for node in three):
        return 0
    inputs = {node.operand(graph, "x").id for node in three}
    ids = {node.id for node in three}
    if len(inputs) > 1 or any(graph.owner(s) in ids for node in three for s in node.sources):
        return 0
    x = graph[inputs.pop()]
    weights = [node.operand(graph, "weight").type for node in three]
    lanes = {stream_lanes(w.dtype.name, w.shape[1]) for w in weights}
    plain = [node for node in three if node.op == "matmul_add"]
    if any(node.operand(graph, "y").type.rows is not None for node in plain):
        return 0
    return 3 if x.type.shape[0] <= MOST_ROWS and len(lanes) == 1 else 0


def _refusal(op: str) -> Refusal:
    return lambda _, out, operands: why_not(op, operands, False)


SITES = ("projections.one", "projections.fused_qkv")
OPS = (
    *("matmul_kv_store", "matmul_add_kv_store"),
    *("matmul_rope", "matmul_add_rope", "matmul_norm_rope"),
    *("matmul_rope_kv_store", "matmul_add_rope_kv_store", "matmul_norm_rope_kv_store"),
)
GROUPED = (*OPS, "matmul", "matmul_add")
GROUPS = (Group("fused_qkv", siblings, emit_three),)
WANTS: dict[str, WantsOf] = dict.fromkeys(OPS, _unfinished)
EMITTERS: dict[str, Emit] = dict.fromkeys(OPS, _projection)
REFUSALS: dict[str, Refusal] = {op: _refusal(op) for op in OPS}
