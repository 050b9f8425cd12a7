"""From a node to launches: one short function per op, in a module per area.

A module has `EMITTERS`, by op, `SITES`, the sites of all its launches, and, where a kernel doesn't take everything
that the op's declaration does, `REFUSALS`: a function of attrs, result type and operand types that gives the reason, or
None. `WANTS` says, by op, what launches take beside values: an op that isn't there takes nothing. `GROUPS`, where there
are any, are runs of nodes that one launch serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from minfer_ir import plugins
from minfer_ir.graph import Node
from minfer_kernels.gpu.emit import (
    attended,
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
from minfer_kernels.gpu.emitter import Emit, Group, Refusal
from minfer_kernels.gpu.scratch import Shapes, Wants, WantsOf

AREAS = (attended, attention, copy, elementwise, kv, lookup, norm, products, projections, quantize, rope)

EMITTERS: Mapping[str, Emit] = MappingProxyType({op: emit for area in AREAS for op, emit in area.EMITTERS.items()})
REFUSALS: Mapping[str, Refusal] = MappingProxyType(
    {op: why_not for area in AREAS for op, why_not in getattr(area, "REFUSALS", {}).items()}
)
_WANTS: Mapping[str, WantsOf] = MappingProxyType(
    {op: wants for area in AREAS for op, wants in getattr(area, "WANTS", {}).items()}
)
LAUNCH_SITES: tuple[str, ...] = tuple(dict.fromkeys(site for area in AREAS for site in area.SITES))
GROUPS: tuple[Group, ...] = tuple(group for area in AREAS for group in getattr(area, "GROUPS", ()))


def emitter_of(op: str) -> Emit | None:
    """What emits `op`, ours or an enabled plug-in's; None without a kernel."""
    return EMITTERS.get(op) or plugins.emitters("gpu").get(op)


def wants_of(e: Shapes, node: Node) -> Wants:
    """What the launches of `node` take beside values."""
    declared = (_WANTS if node.op in EMITTERS else plugins.declared("gpu", "WANTS")).get(node.op)
    return Wants() if declared is None else declared(e, node)
