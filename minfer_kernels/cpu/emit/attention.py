"""Attention."""

from __future__ import annotations

from minfer_ir.graph import Node
from minfer_ir.ops.attention import window_mode
from minfer_kernels.cpu.emit.operands import (
    head_operands,
)
from minfer_kernels.cpu.emitter import Emitter
from minfer_kernels.cpu.kernels.parts.attention.scratch import attention_scratch_bytes, most_blocks, shared_bytes


def _attention(e: Emitter, node: Node) -> None:
    q, k, v, positions, window = e.sources(node)
    rows, n_heads, head_dim = node.type.shape
    n_cells, n_kv_heads = k.type.shape[0], node.attrs.n_kv_heads
    mode = window_mode(window.type.shape, node.type.shape[0])
    stride = attention_scratch_bytes(n_heads, n_kv_heads, head_dim)
    e.call(
        f"attention.attend[{mode},{k.type.dtype.name}]",
        node,
        **head_operands(e, node, "q", q),
        k=e.at(k),
        v=e.at(v),
        positions=e.at(positions),
        window=e.at(window),
        scratch=e.scratch(stride),
        scratch_stride=stride,
        shared=e.shared(shared_bytes(rows, n_cells, n_heads, n_kv_heads, head_dim)),
        most_blocks=most_blocks(rows, n_cells, n_kv_heads),
        cell_bytes=e.row_stride(k),
        n_kv_heads=n_kv_heads,
        scale=node.attrs.scale,
    )


EMITTERS = {"attention": _attention}
