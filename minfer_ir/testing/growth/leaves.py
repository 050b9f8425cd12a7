"""New leaves, and regions with what is stored in them."""

from __future__ import annotations

from minfer_ir.formats import FORMATS, Q8_0_CELL
from minfer_ir.graph import Node
from minfer_ir.ops.leaves import KV_TYPES
from minfer_ir.opspec import (
    WEIGHT_TYPES,
)
from minfer_ir.testing.growth.pool import Growth


def matrix(growth: Growth, n: int, k: int) -> Node:
    """A weight `[n, k]` of a type whose blocks k holds."""
    fitting = [name for name in WEIGHT_TYPES if k % FORMATS[name].block_size == 0]
    return growth.builder.weight(key=growth.key("w"), shape=(n, k), dtype=growth.choose(fitting))


def vector(growth: Growth, n: int) -> Node:
    """A float32 weight `[n]`."""
    return growth.builder.weight(key=growth.key("w"), shape=(n,), dtype="F32")


def positions_of(growth: Growth) -> Node:
    """The graph's positions: one input, however often it is asked for."""
    return growth.builder.input(
        key="positions", shape=(growth.rows["token"],), dtype="i32", rows="token", limit=growth.positions
    )


def region_of(growth: Growth, width: int, head_dim: int, like: Node | None = None) -> Node:
    """A region of rows of `width`, of a type whose blocks don't cross heads."""
    types = KV_TYPES if head_dim % Q8_0_CELL.block_size == 0 else ("f32", "f16")

    def fits(node: Node) -> bool:
        same_type = node.type.dtype.name in types if like is None else node.type == like.type
        return (node.op == "kv" or node.spec.writes is not None) and node.type.shape[1] == width and same_type

    found = growth.find(fits)
    if found is not None:
        return found
    dtype = like.type.dtype.name if like else growth.choose(types)
    return growth.keep(growth.builder.kv(key=growth.key("kv"), cells=growth.cells, width=width, dtype=dtype))


def stored(growth: Growth, region: Node) -> Node:
    """The region, often with new rows in it."""
    if growth.choose((True, False)):
        return region
    rows, width = growth.rows["token"], region.type.shape[1]
    values = growth.find(lambda n: n.type.shape == (rows, width) and n.type.dtype.name == "f32" and n.op != "kv")
    if values is None or values.type.rows != "token":
        values = growth.input((rows, width), "f32", "token")
    return growth.keep(growth.builder.kv_store(region, values, growth.input((rows,), "i32", "token")))
