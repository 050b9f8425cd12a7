"""Ops whose operands depend on each other in ways that patterns don't say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from minfer_ir.graph import Node
from minfer_ir.ops.attention import MAP_RUNS
from minfer_ir.opspec import (
    ACTIVATION_TYPES,
    Op,
)
from minfer_ir.testing.growth.leaves import matrix, positions_of, region_of, stored, vector
from minfer_ir.testing.growth.pool import AWKWARD, Growth


def make_binary(growth: Growth, op: Op) -> bool:
    """Equal shapes, one value twice, or a row vector."""
    x = growth.find(lambda n: n.type.dtype.name == "f32")
    if x is None:
        return False
    kind = growth.choose(("same", "twice", "row"))
    y: Node | None = x if kind == "twice" else None
    if kind == "same":
        y = growth.find(lambda n: n.type == x.type)
    if y is None:
        y = growth.builder.weight(key=growth.key("w"), shape=x.type.shape[-1:], dtype="F32")
    growth.keep(growth.builder.apply(op, (x, y), {}))
    return True


def make_product_sum(growth: Growth, op: Op) -> bool:
    """A product plus a value as wide as it, or plus one row."""
    x = growth.find(
        lambda n: len(n.type.shape) == 2 and n.type.dtype.name in ACTIVATION_TYPES and n.type.rows is not None
    )
    if x is None:
        return False
    rows, axis = x.type.shape[0], x.type.rows
    y = growth.find(lambda n: n.type.shape[:-1] == (rows,) and n.type.dtype.name == "f32" and n.type.rows == axis)
    if y is None or growth.choose((False, False, True)):
        y = vector(growth, growth.choose(AWKWARD))
    growth.keep(growth.builder.apply(op, (x, matrix(growth, y.type.shape[-1], x.type.shape[1]), y), {}))
    return True


def make_rope(growth: Growth, op: Op) -> bool:
    """Heads of an even width, rotated in part or whole; frequency factors sometimes."""
    x = growth.heads()
    dims = x.type.shape[2] // 2 * 2
    sources = [x, positions_of(growth)]
    if growth.choose((False, False, True)):
        sources.append(growth.builder.weight(key=growth.key("w"), shape=(dims // 2,), dtype="F32"))
    attrs = {"pairs": growth.choose(("neox", "interleaved")), "dims": dims, "base": 10000.0}
    growth.keep(growth.builder.apply(op, sources, attrs | {"max_positions": growth.cells}))
    return True


def make_kv_store(growth: Growth, op: Op) -> bool:
    """Rows into the newest version of a region as wide as they are."""
    values = growth.find(lambda n: len(n.type.shape) == 2 and n.type.dtype.name == "f32" and n.type.rows == "token")
    if values is None:
        return False
    region = region_of(growth, values.type.shape[1], head_dim=values.type.shape[1])
    growth.keep(growth.builder.kv_store(region, values, growth.input((growth.rows["token"],), "i32", "token")))
    return True


def make_fused_heads(growth: Growth, op: Op) -> bool:
    """Heads of a value or of a product, normed, rotated or stored: operands by the names of their slots."""
    named: dict[str, Node] = {}
    if op.is_product:
        x = growth.find(lambda n: len(n.type.shape) == 2 and n.type.dtype.name == "f32" and n.type.rows == "token")
        named["x"] = x or growth.input((growth.rows["token"], 32), "f32", "token")
        shape = (growth.rows["token"], growth.choose((1, 2, 4)), growth.choose((16, 32, 12)))
        named["weight"] = matrix(growth, shape[1] * shape[2], named["x"].type.shape[1])
    else:
        named["x"] = growth.heads()
        shape = named["x"].type.shape
    width, dims = shape[1] * shape[2], shape[2] // 2 * 2
    makers: dict[str, Callable[[], Node]] = {
        "bias": lambda: vector(growth, width),
        "norm_weight": lambda: vector(growth, shape[2]),
        "positions": lambda: positions_of(growth),
        "region": lambda: region_of(growth, width, 1),
        "cells": lambda: growth.input((growth.rows["token"],), "i32", "token"),
        "factors": lambda: vector(growth, dims // 2),
    }
    for slot in op.operands:
        if slot.name not in named and not (slot.optional and growth.choose((True, True, False))):
            named[slot.name] = makers[slot.name]()
    rope = {"pairs": growth.choose(("neox", "interleaved")), "dims": dims, "base": 10000.0}
    values = {"heads": shape, "row": (shape[0], width), "eps": 1e-6, "max_positions": growth.cells, **rope}
    attrs = {field.name: values[field.name] for field in fields(op.Attrs) if field.name in values}
    sources = [named[slot.name] for slot in op.operands if slot.name in named]
    growth.keep(growth.builder.apply(op, sources, attrs))
    return True


def make_attention(growth: Growth, op: Op) -> bool:
    """Grouped heads over two regions of one type, in any window mode."""
    q = growth.heads()
    rows, heads, width = q.type.shape
    kv_heads = growth.choose([n for n in (1, 2, 3, 4) if heads % n == 0])
    k = stored(growth, region_of(growth, kv_heads * width, head_dim=width))
    v = region_of(growth, kv_heads * width, width, like=k)
    v = v if v is k else stored(growth, v)
    shape = growth.choose(((1,), (rows, 2), (rows, 2 * MAP_RUNS)))
    window = growth.input(shape, "i32", None if shape == (1,) else "token")
    attrs = {"n_kv_heads": kv_heads, "scale": width**-0.5}
    growth.keep(growth.builder.apply(op, (q, k, v, positions_of(growth), window), attrs))
    return True


def make_view(growth: Growth, op: Op) -> bool:
    """Windows, other shapes and other axis orders of any computed value; rows stay rows."""

    def computed(*names: str) -> Node | None:
        return growth.find(lambda n: n.type.dtype.name in names and n.op != "weight" and len(n.type.shape) > 1)

    # Few ops give blocks: views of them would hardly turn up among as many ops as there are.
    x = computed(*ACTIVATION_TYPES[1:]) if growth.choose((False, True)) else None
    x = x or computed(*ACTIVATION_TYPES)
    if x is None:
        return False
    shape = x.type.shape
    whole = x.type.dtype.name != "f32"
    if op.name == "view":
        sizes = [d if i == 0 or whole else growth.choose(range(1, d + 1)) for i, d in enumerate(shape)]
        starts = [growth.choose(range(d - n + 1)) for d, n in zip(shape, sizes, strict=True)]
        attrs: dict[str, Any] = {"starts": starts, "shape": sizes}
    elif op.name == "permute":
        attrs = {"axes": (0, *growth.choose(([*range(1, len(shape))], [*range(1, len(shape))][::-1])))}
    else:
        inner = x.type.size // shape[0]
        splits = [(n, inner // n) for n in (1, 2, 3, 4, 8) if inner % n == 0]
        attrs = {"shape": (shape[0], *growth.choose([(inner,), *splits, *((1, *s) for s in splits)]))}
    growth.keep(growth.builder.apply(op, (x,), attrs))
    return True
