"""Growing random graphs op by op, from the declarations: what the `graphs` strategy is made of.

The declared operand patterns choose the sources. An op whose operands depend on each other in other ways has a maker
here; an op from elsewhere takes its attrs from its own test cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, TypeVar

from minfer_ir.builder import GraphBuilder
from minfer_ir.dtypes import DTYPES
from minfer_ir.formats import FORMATS, Q8_0_CELL
from minfer_ir.graph import Graph, Node
from minfer_ir.ops import OPS
from minfer_ir.ops.attention import MAP_RUNS
from minfer_ir.ops.leaves import KV_TYPES
from minfer_ir.opspec import (
    ACTIVATION_TYPES,
    WEIGHT_TYPES,
    FusedOp,
    Op,
    Operand,
    OpError,
    bind_dims,
    bind_rows,
    check_dtype,
)
from minfer_ir.types import RowAxis

T = TypeVar("T")

AWKWARD = (1, 2, 3, 7, 12, 17, 32, 64, 96, 256)
"""One, primes, off the vector size, and whole blocks of both sizes."""


class Choose(Protocol):
    """Where decisions come from: hypothesis, or a seeded generator."""

    def __call__(self, options: Sequence[T], /) -> T:
        """One of `options`."""
        ...


class Growth:
    """A graph in the making: a pool of values, and a way to add one more op to it."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.builder = GraphBuilder()
        self.pool: list[Node] = []
        self.rows: dict[RowAxis | None, int] = {"token": choose((1, 2, 3, 4, 8)), "output": choose((1, 2))}
        self.cells = max(choose((1, 17, 70)), self.rows["token"])
        self.positions = max(1, self.cells // choose((1, 2)))
        self._keys = 0
        self.keep(self.input((self.rows["token"], choose(AWKWARD)), "f32", "token"))

    def key(self, kind: str) -> str:
        """A fresh leaf name."""
        self._keys += 1
        return f"{kind}{self._keys}"

    def keep(self, node: Node) -> Node:
        """Offer a value to later ops. A store takes the place of the version that it overwrote, and of its views."""
        if node.spec.effect == "writes_kv":
            written = [slot.name for slot in node.spec.operands].index(node.spec.writes or "")
            self.pool = [n for n in self.pool if self._unviewed(n) != node.sources[written]]
        self.pool.append(node)
        return node

    def _unviewed(self, node: Node) -> int:
        by_id = {n.id: n for n in self.pool}
        while node.view is not None and node.view.source in by_id:
            node = by_id[node.view.source]
        return node.id if node.view is None else node.view.source

    def input(self, shape: tuple[int, ...], dtype: str, rows: RowAxis | None, limit: int | None = None) -> Node:
        """A new input."""
        return self.builder.input(key=self.key("in"), shape=shape, dtype=dtype, rows=rows, limit=limit)

    def find(self, accept: Callable[[Node], bool]) -> Node | None:
        """One of the pool's values that `accept` likes."""
        found = [n for n in self.pool if accept(n)]
        return self.choose(found) if found else None

    def heads(self) -> Node:
        """A value `[T, N, D]`: from the pool, or by splitting the rows of one `[T, H]`."""
        found = self.find(lambda n: len(n.type.shape) == 3 and n.type.dtype.name == "f32" and n.type.rows == "token")
        if found is not None and self.choose((True, False)):
            return found
        flat = self.find(lambda n: len(n.type.shape) == 2 and n.type.dtype.name == "f32" and n.type.rows == "token")
        flat = flat or self.input((self.rows["token"], 12), "f32", "token")
        rows, width = flat.type.shape
        heads = self.choose([h for h in (1, 2, 3, 4) if width % h == 0])
        return self.keep(self.builder.reshape(flat, shape=(rows, heads, width // heads)))

    def add(self, op: Op) -> bool:
        """Grow the graph by one `op`, if its operands and attrs can be had; True when it did."""
        try:
            return MAKERS.get(op.name, make_declared)(self, op)
        except OpError:
            return False


def make_declared(growth: Growth, op: Op) -> bool:
    """Operands by their declared patterns, attrs by name."""
    dims: dict[str, int] = {}
    rows: dict[str, RowAxis | None] = {}
    sources: list[Node] = []
    for slot in op.operands:
        if slot.optional and growth.choose((True, False)):
            break
        sources.append(_operand(growth, op, slot, dims, rows))
        bind_dims(op.name, slot, sources[-1].type.shape, dims)
        bind_rows(op.name, slot, sources[-1].type.rows, rows)
    attrs = ATTRS.get(op.name, _case_attrs)(growth, op, sources)
    growth.keep(growth.builder.apply(op, sources, attrs))
    return True


def _operand(
    growth: Growth, op: Op, slot: Operand, dims: Mapping[str, int], rows: Mapping[str, RowAxis | None]
) -> Node:
    def fits(node: Node) -> bool:
        try:
            check_dtype(op.name, slot, node.type.dtype)
            bind_dims(op.name, slot, node.type.shape, dict(dims))
            bind_rows(op.name, slot, node.type.rows, dict(rows))
        except OpError:
            return False
        return True

    found = growth.find(fits)
    if found is not None and growth.choose((True, True, True, False)):
        return found
    return growth.keep(_leaf(growth, op, slot, dims, rows))


def _leaf(growth: Growth, op: Op, slot: Operand, dims: Mapping[str, int], rows: Mapping[str, RowAxis | None]) -> Node:
    """A new weight or input that the slot accepts."""
    if slot.dims == "*":
        raise OpError(f"{op.name}: nothing fits {slot.name}")
    groups = {"weight": WEIGHT_TYPES, "activation": ("f32",)}
    accepted = [name for d in slot.dtypes for name in groups.get(d, (d,)) if name not in ACTIVATION_TYPES[1:]]
    names = slot.dims.replace("...", "T").split()
    shape = tuple(int(n) if n.isdigit() else dims.get(n) or _dim(growth, n) for n in names)
    fitting = [n for n in accepted if n in DTYPES or shape[-1] % FORMATS[n].block_size == 0]
    dtype = growth.choose(fitting)
    if op.name == "matmul" and shape[0] > 1 and growth.choose((False, True)):
        keys, sizes = [growth.key("w"), growth.key("w")], [1, shape[0] - 1]
        return growth.builder.weight_concat(keys=keys, sizes=sizes, width=shape[1], dtype=dtype)
    if dtype in FORMATS:
        return growth.builder.weight(key=growth.key("w"), shape=shape, dtype=dtype)
    axis: RowAxis | None = rows.get(names[0], "token" if names[0] == "T" else None)
    if dtype == "i32" and op.name == "get_rows":
        axis = growth.choose(("token", "output"))
        shape = (growth.rows[axis], *shape[1:])
    limit = (dims.get("V") or growth.cells) if dtype == "i32" else None
    return growth.input(shape, dtype, axis, limit)


def _dim(growth: Growth, name: str) -> int:
    return growth.rows["token"] if name == "T" else growth.choose(AWKWARD)


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
        y = _vector(growth, growth.choose(AWKWARD))
    growth.keep(growth.builder.apply(op, (x, _matrix(growth, y.type.shape[-1], x.type.shape[1]), y), {}))
    return True


def make_rope(growth: Growth, op: Op) -> bool:
    """Heads of an even width, rotated in part or whole; frequency factors sometimes."""
    x = growth.heads()
    dims = x.type.shape[2] // 2 * 2
    sources = [x, _positions(growth)]
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
    region = _region(growth, values.type.shape[1], head_dim=values.type.shape[1])
    growth.keep(growth.builder.kv_store(region, values, growth.input((growth.rows["token"],), "i32", "token")))
    return True


def make_fused_heads(growth: Growth, op: Op) -> bool:
    """Heads of a value or of a product, normed, rotated or stored: operands by the names of their slots."""
    named: dict[str, Node] = {}
    if op.is_product:
        x = growth.find(lambda n: len(n.type.shape) == 2 and n.type.dtype.name == "f32" and n.type.rows == "token")
        named["x"] = x or growth.input((growth.rows["token"], 32), "f32", "token")
        shape = (growth.rows["token"], growth.choose((1, 2, 4)), growth.choose((16, 32, 12)))
        named["weight"] = _matrix(growth, shape[1] * shape[2], named["x"].type.shape[1])
    else:
        named["x"] = growth.heads()
        shape = named["x"].type.shape
    width, dims = shape[1] * shape[2], shape[2] // 2 * 2
    makers: dict[str, Callable[[], Node]] = {
        "bias": lambda: _vector(growth, width),
        "norm_weight": lambda: _vector(growth, shape[2]),
        "positions": lambda: _positions(growth),
        "region": lambda: _region(growth, width, 1),
        "cells": lambda: growth.input((growth.rows["token"],), "i32", "token"),
        "factors": lambda: _vector(growth, dims // 2),
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


def _matrix(growth: Growth, n: int, k: int) -> Node:
    fitting = [name for name in WEIGHT_TYPES if k % FORMATS[name].block_size == 0]
    return growth.builder.weight(key=growth.key("w"), shape=(n, k), dtype=growth.choose(fitting))


def _vector(growth: Growth, n: int) -> Node:
    return growth.builder.weight(key=growth.key("w"), shape=(n,), dtype="F32")


def make_attention(growth: Growth, op: Op) -> bool:
    """Grouped heads over two regions of one type, in any window mode."""
    q = growth.heads()
    rows, heads, width = q.type.shape
    kv_heads = growth.choose([n for n in (1, 2, 3, 4) if heads % n == 0])
    k = _stored(growth, _region(growth, kv_heads * width, head_dim=width))
    v = _region(growth, kv_heads * width, width, like=k)
    v = v if v is k else _stored(growth, v)
    shape = growth.choose(((1,), (rows, 2), (rows, 2 * MAP_RUNS)))
    window = growth.input(shape, "i32", None if shape == (1,) else "token")
    attrs = {"n_kv_heads": kv_heads, "scale": width**-0.5}
    growth.keep(growth.builder.apply(op, (q, k, v, _positions(growth), window), attrs))
    return True


def _positions(growth: Growth) -> Node:
    return growth.builder.input(
        key="positions", shape=(growth.rows["token"],), dtype="i32", rows="token", limit=growth.positions
    )


def _region(growth: Growth, width: int, head_dim: int, like: Node | None = None) -> Node:
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


def _stored(growth: Growth, region: Node) -> Node:
    """The region, often with new rows in it."""
    if growth.choose((True, False)):
        return region
    rows, width = growth.rows["token"], region.type.shape[1]
    values = growth.find(lambda n: n.type.shape == (rows, width) and n.type.dtype.name == "f32" and n.op != "kv")
    if values is None or values.type.rows != "token":
        values = growth.input((rows, width), "f32", "token")
    return growth.keep(growth.builder.kv_store(region, values, growth.input((rows,), "i32", "token")))


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


def _case_attrs(growth: Growth, op: Op, sources: Sequence[Node]) -> dict[str, Any]:
    cases = op.cases()
    return dict(growth.choose(cases).attrs) if cases else {}


def _block_size_attrs(growth: Growth, op: Op, sources: Sequence[Node]) -> dict[str, Any]:
    width = sources[1].type.shape[0] if op.is_product else sources[0].type.shape[-1]
    fitting = [name for name in ACTIVATION_TYPES[1:] if width % FORMATS[name].block_size == 0]
    if not fitting:
        raise OpError(f"{op.name}: no activation format holds {width} features")
    return {**_case_attrs(growth, op, sources), "dtype": growth.choose(fitting)}


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
ATTRS: Mapping[str, Callable[[Growth, Op, Sequence[Node]], dict[str, Any]]] = dict.fromkeys(
    ("quantize_act", "rms_norm_quantize", "swiglu_quantize", "matmul_swiglu_quantize"), _block_size_attrs
)


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
