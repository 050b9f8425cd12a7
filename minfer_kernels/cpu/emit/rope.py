"""Rotary positions, alone and with what goes before and after."""

from __future__ import annotations

from minfer_ir.graph import Node
from minfer_kernels.cpu.emit.operands import (
    cell_operands,
    head_operands,
    rope_operands,
)
from minfer_kernels.cpu.emitter import Emitter
from minfer_kernels.cpu.runner.tape import Place


def _rope(e: Emitter, node: Node) -> None:
    x, positions, *factors = e.sources(node)
    table = e.tables(node.attrs, e.binding.weights[factors[0].id] if factors else None)
    e.call(
        f"rope.{node.attrs.pairs}",
        node,
        **head_operands(e, node, "x", x),
        positions=e.at(positions),
        table=Place(table.ctypes.data, "rope table"),
        table_stride=table.strides[0],
        dims=node.attrs.dims,
    )


def _qk_norm_rope(e: Emitter, node: Node) -> None:
    named = dict(node.operands(e.graph))
    operands = {**head_operands(e, node, "x", named["x"]), **rope_operands(e, node, named)}
    weight = e.at(named["norm_weight"])
    e.call(f"fused_rope.norm[{node.attrs.pairs}]", node, **operands, weight=weight, eps=node.attrs.eps)


def _rope_kv_store(e: Emitter, node: Node) -> None:
    named = dict(node.operands(e.graph))
    x, norm_weight = named["x"], named.get("norm_weight")
    _, n_heads, head_dim = x.type.shape
    shape = {"n_heads": n_heads, "head_dim": head_dim, "x_stride": e.stride(x, 0), "x_head_stride": e.stride(x, 1)}
    kind = "plain" if norm_weight is None else "norm"
    scratch_stride = (4 * head_dim + 63) // 64 * 64
    e.call(
        f"fused_rope.store[{node.attrs.pairs},{kind},{named['region'].type.dtype.name}]",
        node,
        x=e.at(x),
        weight=0 if norm_weight is None else e.at(norm_weight),
        eps=0.0 if norm_weight is None else node.attrs.eps,
        scratch=e.scratch(scratch_stride),
        scratch_stride=scratch_stride,
        **shape,
        **rope_operands(e, node, named),
        **cell_operands(e, named, x),
    )


EMITTERS = {
    "rope": _rope,
    "qk_norm_rope": _qk_norm_rope,
    "rope_kv_store": _rope_kv_store,
    "qk_norm_rope_kv_store": _rope_kv_store,
}
