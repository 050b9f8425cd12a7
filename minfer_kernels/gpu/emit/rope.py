"""Rotations of heads as launches: alone, behind a norm, into KV cells."""

from __future__ import annotations

from typing import Any

import torch
import triton

from minfer_ir.graph import Node
from minfer_ir.ops.fused_rope import plain_rope
from minfer_ir.ops.rope import RopeAttrs
from minfer_kernels.gpu.emit.norm import head_tile
from minfer_kernels.gpu.emit.operands import strides
from minfer_kernels.gpu.emitter import Emit, Emitter, most_rows
from minfer_kernels.gpu.kernels import cells, rope
from minfer_kernels.gpu.scratch import Shapes, Wants, WantsOf
from minfer_kernels.gpu.tables import computed_factors

BLOCKS = 16
WEIGHTS = ("weight", "weight_concat")


def _rope(e: Emitter, node: Node) -> None:
    """rope and qk_norm_rope."""
    x = node.operand(e.graph, "x")
    _, n_heads, head_dim = node.type.shape
    dims, tile = node.attrs.dims, head_tile(head_dim)
    e.launch(
        f"rope.{'norm_' if node.op == 'qk_norm_rope' else ''}rotate",
        node,
        rope.rotate,
        (most_rows(node), triton.cdiv(n_heads, tile["HEADS"])),
        x=e.tensor(x),
        out=e.tensor(node),
        **angles(e, node, most_rows(node)),
        **_norm(e, node),
        n_heads=n_heads,
        head_dim=head_dim,
        **strides(e, x=x, out=node),
        **tile,
        HALF=triton.next_power_of_2(dims // 2),
        REST=triton.next_power_of_2(max(1, head_dim - dims)),
    )


def _rope_kv_store(e: Emitter, node: Node) -> None:
    """rope_kv_store and qk_norm_rope_kv_store."""
    named = dict(node.operands(e.graph))
    region, x = named["region"], named["x"]
    rows, n_heads, head_dim = x.type.shape
    width, whole = n_heads * head_dim, head_dim % 32 == 0
    count = BLOCKS if whole else 1
    e.launch(
        f"rope.{'norm_' if 'norm_weight' in named else ''}store",
        node,
        rope.store,
        (rows, triton.cdiv(width, 32 * count)),
        x=e.tensor(x),
        region=e.bytes_at(region),
        cells=e.tensor(named["cells"]),
        **angles(e, node, rows),
        **_norm(e, node),
        width=width,
        head_dim=head_dim,
        **strides(e, x=x),
        cell_bytes=e.row_stride(region),
        LAYOUT=cells.LAYOUTS[region.type.dtype.name],
        BLOCKS=count,
        WIDE=triton.next_power_of_2(head_dim),
        WHOLE=whole,
    )


def angles(e: Emitter, node: Node, rows: int) -> dict[str, Any]:
    """What kernels that rotate take: positions, the table of angles, its pairs, and how many rows there are.

    Computed frequency factors are known when the step runs: a launch of its own then makes the angles of its rows.
    """
    named, attrs = dict(node.operands(e.graph)), node.attrs
    positions, factors = named["positions"], named.get("factors")
    shared = {"rows_at": e.rows_at(positions), "positions": e.tensor(positions)}
    if factors is None or factors.op in WEIGHTS:
        table, by_row = e.rope_table(plain_rope(attrs), factors), False
    else:
        table, by_row = _computed(e, node, factors, rows, shared), True
    return {**shared, "table": table, "dims": attrs.dims, "PAIRS": attrs.pairs, "BY_ROW": by_row}


def computed_angles(e: Shapes, node: Node, rows: int) -> Wants:
    """The angles of a step's rows, where the frequency factors are computed."""
    factors = dict(node.operands(e.graph)).get("factors")
    return Wants() if factors is None or factors.op in WEIGHTS else Wants((4 * rows * node.attrs.dims,))


def _computed(e: Emitter, node: Node, factors: Node, rows: int, shared: dict[str, Any]) -> torch.Tensor:
    attrs: RopeAttrs = node.attrs
    half = attrs.dims // 2
    table = e.scratch(4 * rows * attrs.dims).view(torch.float32)
    frequencies, numbers = computed_factors(attrs, table.device)
    operands = {"frequencies": frequencies, "factors": e.tensor(factors), "numbers": numbers, "out": table}
    constants = {"LLAMA3": attrs.scaling.kind == "llama3", "HALF": triton.next_power_of_2(half)}
    e.launch("rope.angles", node, rope.angles, (rows,), **operands, **shared, half=half, **constants)
    return table


def _norm(e: Emitter, node: Node) -> dict[str, Any]:
    """The norm before the rotation; where there is none, any pointer stands for its weight."""
    named = dict(node.operands(e.graph))
    weight = named.get("norm_weight")
    given = e.tensor(named["x"] if weight is None else weight)
    return {"weight": given, "eps": 0.0 if weight is None else node.attrs.eps, "NORM": weight is not None}


SITES = ("rope.rotate", "rope.norm_rotate", "rope.store", "rope.norm_store", "rope.angles")
WANTS: dict[str, WantsOf] = {
    **dict.fromkeys(("rope", "qk_norm_rope"), lambda e, node: computed_angles(e, node, most_rows(node))),
    **dict.fromkeys(
        ("rope_kv_store", "qk_norm_rope_kv_store"),
        lambda e, node: computed_angles(e, node, node.operand(e.graph, "x").type.shape[0]),
    ),
}
EMITTERS: dict[str, Emit] = {
    **dict.fromkeys(("rope", "qk_norm_rope"), _rope),
    **dict.fromkeys(("rope_kv_store", "qk_norm_rope_kv_store"), _rope_kv_store),
}
