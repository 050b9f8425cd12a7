"""Attention and its rows in 8 bits, which the last of its launches can store."""

from __future__ import annotations

from collections.abc import Sequence

from minfer_ir.graph import Graph, Node
from minfer_kernels.gpu.emit import quantize
from minfer_kernels.gpu.emit.attention import emit_attention, takes_quantize
from minfer_kernels.gpu.emit.quantize import blocks_of
from minfer_kernels.gpu.emitter import Emit, Emitter, Group


def attention_and_rows(graph: Graph, nodes: Sequence[Node], i: int) -> int:
    """Attention, and the quantization of all it computed, read by no one else."""
    pair = nodes[i : i + 2]
    if [node.op for node in pair] != ["attention", "quantize_act"]:
        return 0
    attention, x = pair[0], graph[pair[1].sources[0]]
    whole = graph.owner(x.id) == attention.id and x.type.size == attention.type.size
    readers = [u for n in graph if graph.owner(n.id) == attention.id for u in graph.users[n.id]]
    if any(graph.owner(o) == attention.id for o in graph.outputs):
        return 0
    return 2 if whole and all(graph[u].view is not None or u == pair[1].id for u in readers) else 0


def emit_attended(e: Emitter, nodes: Sequence[Node]) -> None:
    """Attention into 8-bit rows; where its kernels don't store such blocks, the quantization after it."""
    attention, quantized = nodes
    if takes_quantize(e, attention, blocks_of(quantized)["BLOCK"]):
        emit_attention(e, attention, quantized)
        return
    emit_attention(e, attention)
    quantize.EMITTERS["quantize_act"](e, quantized)


SITES: tuple[str, ...] = ()
EMITTERS: dict[str, Emit] = {}
GROUPS = (Group("fused_attention", attention_and_rows, emit_attended, reads_longer=True),)
