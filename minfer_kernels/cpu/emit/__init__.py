"""From a node to kernel calls: one short function per op, in a module per area, each with its `EMITTERS` by op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from minfer_ir import plugins
from minfer_ir.graph import Node
from minfer_kernels.cpu.emit import (
    attention,
    copy,
    elementwise,
    kv,
    lookup,
    norm,
    products,
    projections,
    quantize,
    rope,
)
from minfer_kernels.cpu.emitter import Emitter

Emit = Callable[[Emitter, Node], None]
"""Emits one node."""

AREAS = (attention, copy, elementwise, kv, lookup, norm, products, projections, quantize, rope)

EMITTERS: Mapping[str, Emit] = MappingProxyType({op: emit for area in AREAS for op, emit in area.EMITTERS.items()})


def emitter_of(op: str) -> Emit | None:
    """What emits `op`, ours or an enabled plug-in's; None without a kernel."""
    return EMITTERS.get(op) or plugins.emitters("cpu").get(op)
