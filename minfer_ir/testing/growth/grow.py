"""One more op, and the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minfer_ir.graph import Graph
from minfer_ir.ops import OPS
from minfer_ir.opspec import (
    FusedOp,
    Op,
    OpError,
)
from minfer_ir.testing.growth.declared import make_declared
from minfer_ir.testing.growth.makers import (
    make_attention,
    make_binary,
    make_fused_heads,
    make_kv_store,
    make_product_sum,
    make_rope,
    make_view,
)
from minfer_ir.testing.growth.pool import Growth


def _over_heads(op: Op) -> bool:
    return isinstance(op, FusedOp) and any(slot.name in ("region", "positions") for slot in op.operands)


MAKERS: Mapping[str, Callable[[Growth, Op], bool]] = {
    "add": make_binary,
    "mul": make_binary,
    "matmul_add": make_product_sum,
    "rope": make_rope,
    "kv_store": make_kv_store,
    "attention": make_attention,
    **dict.fromkeys((name for name, op in OPS.items() if _over_heads(op)), make_fused_heads),
    "view": make_view,
    "reshape": make_view,
    "permute": make_view,
}


def add(growth: Growth, op: Op) -> bool:
    """Grow the graph by one `op`, if its operands and attrs can be had; True when it did."""
    try:
        return MAKERS.get(op.name, make_declared)(growth, op)
    except OpError:
        return False


def finish(growth: Growth) -> Graph:
    """The graph, with the values that nothing reads as outputs, and sometimes one that is read."""
    read = {s for n in growth.pool for s in n.sources}
    computed = [n for n in growth.pool if n.spec.effect in ("pure", "reads_kv", "view") and n.type.dtype.name == "f32"]
    ends = [n for n in computed if n.id not in read]
    dead = growth.choose((False, True)) and len(ends) > 1
    outputs = ends[1:] if dead else ends
    if computed and growth.choose((False, True)):
        outputs = [*outputs, growth.choose(computed)]
    if not outputs:
        outputs = [growth.builder.scale(growth.pool[0], factor=0.5)]
    for node in dict.fromkeys(outputs):
        growth.builder.output(node)
    return growth.builder.build()
