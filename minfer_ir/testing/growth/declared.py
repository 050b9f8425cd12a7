"""An op whose operands follow from their declared patterns, one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minfer_ir.dtypes import DTYPES
from minfer_ir.formats import FORMATS
from minfer_ir.graph import Node
from minfer_ir.opspec import (
    ACTIVATION_TYPES,
    WEIGHT_TYPES,
    Op,
    Operand,
    OpError,
    bind_dims,
    bind_rows,
    check_dtype,
)
from minfer_ir.testing.growth.pool import AWKWARD, Growth
from minfer_ir.types import RowAxis


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


def _case_attrs(growth: Growth, op: Op, sources: Sequence[Node]) -> dict[str, Any]:
    cases = op.cases()
    return dict(growth.choose(cases).attrs) if cases else {}


def _block_size_attrs(growth: Growth, op: Op, sources: Sequence[Node]) -> dict[str, Any]:
    width = sources[1].type.shape[0] if op.is_product else sources[0].type.shape[-1]
    fitting = [name for name in ACTIVATION_TYPES[1:] if width % FORMATS[name].block_size == 0]
    if not fitting:
        raise OpError(f"{op.name}: no activation format holds {width} features")
    return {**_case_attrs(growth, op, sources), "dtype": growth.choose(fitting)}


ATTRS: Mapping[str, Callable[[Growth, Op, Sequence[Node]], dict[str, Any]]] = dict.fromkeys(
    ("quantize_act", "rms_norm_quantize", "swiglu_quantize", "matmul_swiglu_quantize"), _block_size_attrs
)
