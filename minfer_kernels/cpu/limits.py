"""Which types the CPU kernels take, and the reason where they don't."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minfer_ir.dtypes import DType
from minfer_ir.formats.base import Format
from minfer_ir.ops import OPS
from minfer_ir.ops.projection import HeadsAttrs, NormHeadsAttrs, NormHeadsStoreAttrs
from minfer_ir.types import TensorType
from minfer_kernels.cpu.emit import emitter_of
from minfer_kernels.cpu.weights.layouts import activation_format

MOST_IMBALANCE = 1.04
"""The busiest thread's work over the mean: what a fused product may cost, set against the barrier it saves."""
HEAD_GROUP = 16
"""Heads that a product rotates are whole groups of rows of every layout."""
WITH_NORM = (NormHeadsAttrs, NormHeadsStoreAttrs)


def why_not(op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType], n_threads: int = 1) -> str | None:
    """None when a kernel takes this op on these types and shares it out over `n_threads`, else the reason why not."""
    if op in OPS and OPS[op].effect in ("leaf", "view"):
        return None
    if emitter_of(op) is None:
        return "no kernel"
    if reason := _cells(op, operands) or _factors(op, operands):
        return reason
    if OPS[op].is_product:
        return _product(op, operands) or _whole_heads(attrs) or _shares(_units(op, attrs, out), n_threads)
    return _axes(op, operands)


def _cells(op: str, operands: Sequence[TensorType]) -> str | None:
    """The plain store writes every cell type; those that rows go to straight from a register, scalars alone."""
    named = {slot.name: kind for slot, kind in zip(OPS[op].operands, operands, strict=False)}
    if op != "kv_store" and "region" in named and not isinstance(named["region"].dtype, DType):
        return f"it stores scalars, not blocks of {named['region'].dtype.name}"
    return None


def _factors(op: str, operands: Sequence[TensorType]) -> str | None:
    named = {slot.name: kind for slot, kind in zip(OPS[op].operands, operands, strict=False)}
    if "factors" in named and named["factors"].dtype.name == "f32":
        return "frequency factors must be a weight: the table of angles is made before the first step"
    return None


def _axes(op: str, operands: Sequence[TensorType]) -> str | None:
    shape = list(operands[0].shape)
    return f"a copy takes up to 4 axes, not {shape}" if op == "contiguous" and len(shape) > 4 else None


def _product(op: str, operands: Sequence[TensorType]) -> str | None:
    x, weights = operands[0], list(OPS[op].weight_operands(operands))
    formats = {w.dtype.name for w in weights}
    if len(formats) > 1:
        return f"its kernel decodes one weight format, not {' and '.join(sorted(formats))}"
    wanted = activation_format(weights[0].dtype.name)
    if x.dtype.name != wanted:
        return f"{weights[0].dtype.name} weights take {wanted} activations, not {x.dtype.name}"
    return None


def _whole_heads(attrs: Any) -> str | None:
    if isinstance(attrs, HeadsAttrs) and attrs.heads[2] % HEAD_GROUP:
        return f"heads of {attrs.heads[2]} aren't whole groups of {HEAD_GROUP} rows"
    return None


def _units(op: str, attrs: Any, out: TensorType) -> tuple[int, ...] | None:
    """Number and size of the units in which threads share a product's rows, where they are larger than a few groups."""
    if isinstance(attrs, HeadsAttrs) and (isinstance(attrs, WITH_NORM) or attrs.pairs == "neox"):
        return attrs.heads[1:]
    if op == "matmul_swiglu_quantize" and isinstance(out.dtype, Format):
        return out.shape[1] // out.dtype.block_size, out.dtype.block_size
    return None


def _shares(units: tuple[int, ...] | None, n_threads: int) -> str | None:
    """A thread takes whole units: too few of them and threads would wait for the last."""
    if units is None:
        return None
    n, size = units
    if -(-n // n_threads) * n_threads > n * MOST_IMBALANCE:
        return f"{n} units of {size} rows don't share out evenly over {n_threads} threads"
    return None
