"""The time as the core counts it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.compiler.features import Machine
from minfer_kernels.cpu.simd.core import I64, call, i64, op


@op(i64, by_machine=True)
def ticks(b: ir.IRBuilder, machine: Machine) -> Any:
    """A counter that runs at a constant rate, the same on all cores; 0 where a process may read none.

    x86-64: the time stamp counter; AArch64: the virtual count. Elsewhere reading a counter may trap.
    """
    if machine.arch in ("x86_64", "aarch64", "arm64"):
        return call(b, "llvm.readcyclecounter", I64)
    return ir.Constant(I64, 0)
