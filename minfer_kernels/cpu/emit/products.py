"""Products that leave as rows."""

from __future__ import annotations

from minfer_ir.graph import Node
from minfer_kernels.cpu.emit.operands import (
    block_of,
    packed_weight,
    row_operands,
    shared_weight,
)
from minfer_kernels.cpu.emitter import Emitter
from minfer_kernels.cpu.kernels.parts.tile_scratch import TILE_BYTES, UNIT
from minfer_kernels.cpu.weights.layouts import matmul_kernel, packing


def _matmul(e: Emitter, node: Node) -> None:
    x, weight = e.sources(node)
    packed, w = packed_weight(e, weight)
    operands = row_operands(e, node, x=x)
    del operands["width"]
    shared = shared_weight(packed, packed.layout.rows)
    e.call(matmul_kernel(packed.layout), node, shared, **operands, w=w, n=packed.n, k=packed.k)


def _matmul_add(e: Emitter, node: Node) -> None:
    x, weight, y = e.sources(node)
    packed, w = packed_weight(e, weight)
    operands = {**row_operands(e, node, x=x, y=y), "w": w, "n": packed.n, "k": packed.k}
    del operands["width"]
    kernel, scratch = f"fused_matmul.add[{packing(packed.layout)}]", e.scratch(TILE_BYTES)
    e.call(kernel, node, shared_weight(packed, UNIT), **operands, scratch=scratch)


def _matmul_swiglu(e: Emitter, node: Node) -> None:
    x, gate_weight, up_weight = e.sources(node)
    (gate, gate_at), (_, up_at) = packed_weight(e, gate_weight), packed_weight(e, up_weight)
    operands = {**row_operands(e, node, x=x), "gate": gate_at, "up": up_at, "n": gate.n, "k": gate.k}
    del operands["width"]
    packed = packing(gate.layout)
    if node.op == "matmul_swiglu":
        kernel, rows = f"swiglu[{packed}]", UNIT
    else:
        rows = block_of(node)
        kernel = f"swiglu_quantize[{packed},{rows}]"
    shared, scratch = shared_weight(gate, rows), e.scratch(TILE_BYTES)
    e.call(f"fused_matmul.{kernel}", node, shared, **operands, scratch=scratch)


EMITTERS = {
    "matmul": _matmul,
    "matmul_add": _matmul_add,
    "matmul_swiglu": _matmul_swiglu,
    "matmul_swiglu_quantize": _matmul_swiglu,
}
