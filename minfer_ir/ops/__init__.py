"""The ops, each declared once. `OPS` is the registry, by name."""

from __future__ import annotations

from collections.abc import Mapping
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

OPS: Mapping[str, Op] = MappingProxyType(
    {
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
)

FUSED: Mapping[str, FusedOp] = MappingProxyType({n: op for n, op in OPS.items() if isinstance(op, FusedOp)})


def op_named(name: str) -> Op:
    """The declaration of op `name`; raises OpError listing the known ones."""
    try:
        return OPS[name]
    except KeyError:
        raise OpError(f"unknown op {name!r}; known: {', '.join(OPS)}") from None
