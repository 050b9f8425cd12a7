"""Float32 and float16 elements of cells: loads, and float16 widened one or four at a time."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.kernels.parts.attention.registers.loops import (
    plus,
)
from minfer_kernels.cpu.simd import load_f16x16, load_f32x16
from minfer_kernels.cpu.simd.core import (
    F16,
    F32,
    I16,
    I32,
    Op,
    f32,
    i64,
    load,
    op,
    store,
    void,
)
from minfer_kernels.cpu.simd.memory import widen_f16

LOADERS: dict[str, tuple[Op, int]] = {"f32": (load_f32x16, 4), "f16": (load_f16x16, 2)}
"""How a cell type's sixteen elements are loaded, and bytes of one."""


@op(f32, i64)
def load_f16(b: ir.IRBuilder, p: Any) -> Any:
    """The float16 at p, widened exactly."""
    return _widened(b, p)


@load_f16.variant(Isa.AVX2)
def _load_f16_avx2(b: ir.IRBuilder, p: Any) -> Any:
    return b.fpext(load(b, p, F16, 2), F32)


@op(void, i64, i64)
def widen_f16x4(b: ir.IRBuilder, p: Any, to: Any) -> None:
    """Four float16 at p to float32."""
    for i in range(4):
        store(b, plus(b, to, 4 * i), _widened(b, plus(b, p, 2 * i)), 4)


@widen_f16x4.variant(Isa.AVX2)
def _widen_f16x4_avx2(b: ir.IRBuilder, p: Any, to: Any) -> None:
    store(b, to, b.fpext(load(b, p, ir.VectorType(F16, 4), 2), ir.VectorType(F32, 4)), 4)


def _widened(b: ir.IRBuilder, p: Any) -> Any:
    bits = load(b, p, ir.VectorType(I16, 1), 2)
    return b.extract_element(widen_f16(b, bits), ir.Constant(I32, 0))
