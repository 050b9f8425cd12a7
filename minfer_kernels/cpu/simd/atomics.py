"""Primitives for threads that share a tape: atomics, a pause, waiting and waking, and calling a kernel by address."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from minfer_kernels.cpu.compiler.features import Machine
from minfer_kernels.cpu.simd.core import I32, I64, call, i64, op, pointer, void

_FUTEX_WAIT_PRIVATE = 128
_FUTEX_WAKE_PRIVATE = 129
_EVERYONE = 0x7FFFFFFF


@op(i64, i64)
def atomic_load(b: ir.IRBuilder, p: Any) -> Any:
    """The int64 at p; what its writer did before is visible after."""
    return b.load_atomic(pointer(b, p, I64), "seq_cst", 8)


@op(void, i64, i64)
def atomic_store(b: ir.IRBuilder, p: Any, x: Any) -> None:
    """Store an int64 after everything done before."""
    b.store_atomic(x, pointer(b, p, I64), "seq_cst", 8)


@op(i64, i64, i64)
def atomic_add(b: ir.IRBuilder, p: Any, x: Any) -> Any:
    """Add to the int64 at p; returns what was there."""
    return b.atomic_rmw("add", pointer(b, p, I64), x, "seq_cst")


@op(void, by_machine=True)
def pause(b: ir.IRBuilder, machine: Machine) -> None:
    """Tell the core that this is a spin loop."""
    if machine.arch == "x86_64":
        call(b, "llvm.x86.sse2.pause", ir.VoidType())
    elif machine.arch in ("aarch64", "arm64"):
        call(b, "llvm.aarch64.hint", ir.VoidType(), ir.Constant(I32, 1))


@op(void, i64, i64, i64)
def futex_wait(b: ir.IRBuilder, number: Any, p: Any, expected: Any) -> None:
    """Sleep while the low 32 bits at p equal `expected` (little-endian Linux; `number` is SYS_futex)."""
    _syscall(b, number, p, _FUTEX_WAIT_PRIVATE, expected)


@op(void, i64, i64)
def futex_wake(b: ir.IRBuilder, number: Any, p: Any) -> None:
    """Wake everyone who sleeps on p."""
    _syscall(b, number, p, _FUTEX_WAKE_PRIVATE, ir.Constant(I64, _EVERYONE))


@op(void, i64, by_machine=True)
def sleep_microseconds(b: ir.IRBuilder, machine: Machine, microseconds: Any) -> None:
    """Give the core up for about this long."""
    if machine.os == "windows":
        call(b, "Sleep", ir.VoidType(), ir.Constant(I32, 0))
    else:
        call(b, "usleep", I32, b.trunc(microseconds, I32))


@op(void, i64, i64, i64, i64)
def call_kernel(b: ir.IRBuilder, address: Any, args: Any, tid: Any, n_threads: Any) -> None:
    """Call the kernel at `address`."""
    entry = ir.FunctionType(ir.VoidType(), [I64] * 3).as_pointer()
    b.call(b.inttoptr(address, entry), [args, tid, n_threads])


def _syscall(b: ir.IRBuilder, number: Any, p: Any, operation: int, value: Any) -> None:
    no_timeout = ir.Constant(I64, 0)
    call(b, "syscall", I64, number, p, ir.Constant(I64, operation), value, no_timeout)
