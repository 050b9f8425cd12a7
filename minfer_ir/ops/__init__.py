"""The ops, each declared once. `OPS` is the registry, by name; `minfer_ir.plugins` adds to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from minfer_ir.ops.attention import Attention, KvStore
from minfer_ir.ops.elementwise import Add, Mul, Scale, Silu, Softmax
from minfer_ir.ops.fused import AddRmsNorm, RmsNormQuantize, Swiglu, SwigluQuantize
from minfer_ir.ops.fused_matmul import MatMulAdd, MatMulSwiglu, MatMulSwigluQuantize
from minfer_ir.ops.fused_rope import QkNormRope, QkNormRopeKvStore, RopeKvStore
from minfer_ir.ops.leaves import Input, Kv, Weight, WeightConcat
from minfer_ir.ops.linear import GetRows, MatMul, QuantizeAct
from minfer_ir.ops.norm import QkNorm, RmsNorm
from minfer_ir.ops.projection import (
    MatMulAddKvStore,
    MatMulAddRope,
    MatMulAddRopeKvStore,
    MatMulKvStore,
    MatMulNormRope,
    MatMulNormRopeKvStore,
    MatMulRope,
    MatMulRopeKvStore,
)
from minfer_ir.ops.rope import Rope
from minfer_ir.ops.shape import Contiguous, Permute, Reshape, View
from minfer_ir.opspec import FusedOp, Op, OpError

_ops: dict[str, Op] = {
    op.name: op
    for op in (
        *(Input(), Weight(), WeightConcat(), Kv()),
        *(Add(), Mul(), Scale(), Silu(), Softmax(), RmsNorm(), QkNorm()),
        *(MatMul(), GetRows(), QuantizeAct(), Rope(), KvStore(), Attention()),
        *(View(), Reshape(), Permute(), Contiguous()),
        *(Swiglu(), MatMulAdd(), MatMulSwiglu(), MatMulSwigluQuantize()),
        *(QkNormRope(), QkNormRopeKvStore(), RopeKvStore()),
        *(MatMulAddRopeKvStore(), MatMulNormRopeKvStore(), MatMulRopeKvStore()),
        *(MatMulAddRope(), MatMulNormRope(), MatMulRope(), MatMulAddKvStore(), MatMulKvStore()),
        *(AddRmsNorm(), RmsNormQuantize(), SwigluQuantize()),
    )
}
OPS: Mapping[str, Op] = MappingProxyType(_ops)

_fused: dict[str, FusedOp] = {name: op for name, op in _ops.items() if isinstance(op, FusedOp)}
FUSED: Mapping[str, FusedOp] = MappingProxyType(_fused)


def add_ops(added: Sequence[object]) -> None:
    """Register more ops, all or none; raises OpError for a name or a fusion's switch that is taken."""
    names, switches = [*_ops], [*(op.switch for op in _fused.values())]
    for op in added:
        if not isinstance(op, Op):
            raise OpError(f"{op!r} is no op")
        if op.name in names:
            raise OpError(f"there is an op called {op.name} already")
        names.append(op.name)
        if isinstance(op, FusedOp):
            if op.switch in switches:
                raise OpError(f"op {op.name}: there is a fusion with the switch {op.switch} already")
            switches.append(op.switch)
    _ops.update({op.name: op for op in added if isinstance(op, Op)})
    _fused.update({op.name: op for op in added if isinstance(op, FusedOp)})


def drop_ops(added: Sequence[Op]) -> None:
    """Take back what `add_ops` just added, before anything refers to it."""
    for op in added:
        del _ops[op.name]
        _fused.pop(op.name, None)


def op_named(name: str) -> Op:
    """The declaration of op `name`; raises OpError listing the known ones."""
    try:
        return OPS[name]
    except KeyError:
        raise OpError(f"unknown op {name!r}; known: {', '.join(OPS)}") from None
