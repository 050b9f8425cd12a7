"""What every register tile is built of: vector types, a loop in LLVM, addresses and a few vectors of sixteen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.simd.core import (
    F32,
    I8,
    I32,
    I64,
    call,
    const,
)

QUERY_COUNTS = (1, 2, 4)
"""Queries that a tile can take."""
VECTORS = 4
"""Vectors of sixteen elements in a value tile."""

V16F = ir.VectorType(F32, 16)
V16I = ir.VectorType(I32, 16)
V64B = ir.VectorType(I8, 64)
V4I = ir.VectorType(I32, 4)

Body = Callable[[Any, Sequence[Any]], Sequence[Any]]


def loop(b: ir.IRBuilder, first: Any, end: Any, carried: Sequence[Any], body: Body) -> list[Any]:
    """`for i in range(first, end)`, values carried from one turn to the next; returns what they are afterwards."""
    before = b.block
    head, inside, after = (b.append_basic_block(name) for name in ("tile.head", "tile.body", "tile.after"))
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(first, before)
    values = [b.phi(value.type) for value in carried]
    for phi, value in zip(values, carried, strict=True):
        phi.add_incoming(value, before)
    b.cbranch(b.icmp_signed("<", i, end), inside, after)
    b.position_at_end(inside)
    following = body(i, values)
    last = b.block
    i.add_incoming(b.add(i, whole(1)), last)
    for phi, value in zip(values, following, strict=True):
        phi.add_incoming(value, last)
    b.branch(head)
    b.position_at_end(after)
    return values


def whole(n: int) -> Any:
    """An int64 constant."""
    return ir.Constant(I64, n)


def plus(b: ir.IRBuilder, address: Any, n: int) -> Any:
    """`address` + n."""
    return b.add(address, whole(n)) if n else address


def scaled(b: ir.IRBuilder, address: Any, i: Any, n: int) -> Any:
    """`address` + i * n."""
    return b.add(address, b.mul(i, whole(n)))


def rows_from(b: ir.IRBuilder, first: Any, stride: Any, n: int) -> list[Any]:
    """The addresses of n rows, `stride` bytes apart."""
    return [b.add(first, b.mul(stride, whole(r))) for r in range(n)]


def fma16(b: ir.IRBuilder, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once, in sixteen float32 lanes."""
    return call(b, "llvm.fma.v16f32", V16F, x, y, z)


def zeros16() -> Any:
    """Sixteen zeros."""
    return const(V16F, 0.0)


def as_tuple(b: ir.IRBuilder, values: Sequence[Any]) -> Any:
    """Values of one type as what a primitive with a UniTuple result returns."""
    packed: Any = ir.Constant(ir.ArrayType(values[0].type, len(values)), ir.Undefined)
    for i, value in enumerate(values):
        packed = b.insert_value(packed, value, i)
    return packed
