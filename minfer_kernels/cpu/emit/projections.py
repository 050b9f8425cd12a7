"""Products that leave as heads or as KV cells."""

from __future__ import annotations

from minfer_ir.graph import Node
from minfer_ir.ops.rope import RopeAttrs
from minfer_kernels.cpu.emit.operands import (
    cell_operands,
    packed_weight,
    rope_operands,
    shared_weight,
)
from minfer_kernels.cpu.emitter import Emitter
from minfer_kernels.cpu.kernels.parts.tile_scratch import TILE_BYTES, UNIT
from minfer_kernels.cpu.weights.layouts import packing


def _projection(e: Emitter, node: Node) -> None:
    """A product that leaves as heads, or as cells where it has a region."""
    named = dict(node.operands(e.graph))
    x, (packed, w) = named["x"], packed_weight(e, named["weight"])
    vector = named.get("bias") or named.get("norm_weight")
    before = "add" if "bias" in named else "norm" if "norm_weight" in named else "plain"
    rotates = isinstance(node.attrs, RopeAttrs)
    constants = [packing(packed.layout), before, node.attrs.pairs if rotates else "none"]
    operands: dict[str, int | float] = {
        "x": e.at(x),
        "x_stride": e.row_stride(x),
        "w": w,
        "n": packed.n,
        "k": packed.k,
        "vector": 0 if vector is None else e.at(vector),
        "eps": getattr(node.attrs, "eps", 0.0),
        "head_dim": node.attrs.heads[2] if rotates else packed.n,
        **rope_operands(e, node, named),
        "scratch": e.scratch(TILE_BYTES),
    }
    takes_heads = rotates and (before == "norm" or node.attrs.pairs == "neox")
    shared = shared_weight(packed, node.attrs.heads[2] if takes_heads else UNIT)
    if "region" in named:
        constants.append(named["region"].type.dtype.name)
        kernel, places = f"projection.cells[{','.join(constants)}]", cell_operands(e, named, x)
    else:
        kernel = f"projection.rows[{','.join(constants)}]"
        places = {"out": e.at(node), "out_stride": e.stride(node, 0), "rows_at": e.rows_at(node)}
    e.call(kernel, node, shared, **operands, **places)


PROJECTIONS = (
    *("matmul_kv_store", "matmul_add_kv_store"),
    *("matmul_rope", "matmul_add_rope", "matmul_norm_rope"),
    *("matmul_rope_kv_store", "matmul_add_rope_kv_store", "matmul_norm_rope_kv_store"),
)
EMITTERS = dict.fromkeys(PROJECTIONS, _projection)
