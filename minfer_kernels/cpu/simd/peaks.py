"""Multiply-adds as fast as the machine issues them, from registers: the ceilings that kernels are compared with.

Every chain feeds its own result back, so that no compiler can take work out of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from minfer_kernels.cpu.compiler.features import Machine
from minfer_kernels.cpu.compiler.multipliers import CHAINS, f32_multiplier, int8_multiplier
from minfer_kernels.cpu.simd.core import F32, I8, I16, I32, call, const, i64, op, shuffle, store, void

_Step = Callable[[ir.IRBuilder, Any], Any]


@op(void, i64, i64, by_machine=True)
def int8_peak(b: ir.IRBuilder, machine: Machine, steps: Any, sink: Any) -> None:
    """`steps` steps of unsigned times signed bytes; 64 bytes of results go to `sink`."""
    multiplier = int8_multiplier(machine)
    bits = multiplier.bits
    words, shorts, octets = (ir.VectorType(t, bits // t.width) for t in (I32, I16, I8))
    factor: Any = const(octets, 3)

    def dot(b: ir.IRBuilder, acc: Any) -> Any:
        return call(b, "llvm.x86.avx512.vpdpbusd.512", words, acc, factor, b.bitcast(acc, octets))

    def products(b: ir.IRBuilder, acc: Any) -> Any:
        found = call(b, "llvm.x86.avx2.pmadd.ub.sw", shorts, factor, b.bitcast(acc, octets))
        return b.bitcast(b.add(b.bitcast(acc, shorts), found), words)

    def generic(b: ir.IRBuilder, acc: Any) -> Any:
        wide = ir.VectorType(I16, bits // 8)
        found = b.mul(b.zext(factor, wide), b.sext(b.bitcast(acc, octets), wide))
        even, odd = (shuffle(b, found, range(first, bits // 8, 2)) for first in (0, 1))
        return b.bitcast(b.add(b.bitcast(acc, shorts), b.add(even, odd)), words)

    step = {"vpdpbusd": dot, "vpmaddubsw": products, "generic": generic}[multiplier.instruction]
    chains = _looped(b, steps, [const(words, n + 1) for n in range(CHAINS)], step)
    store(b, sink, reduce(b.xor, chains), 4)


@op(void, i64, i64, by_machine=True)
def f32_peak(b: ir.IRBuilder, machine: Machine, steps: Any, sink: Any) -> None:
    """`steps` steps of fused multiply-adds; 64 bytes of results go to `sink`."""
    vector = ir.VectorType(F32, f32_multiplier(machine).bits // 32)
    name = f"llvm.fma.v{vector.count}f32"

    def step(b: ir.IRBuilder, acc: Any) -> Any:
        return call(b, name, vector, acc, const(vector, 0.5), const(vector, 1.0))

    # From 3 on towards 2, never there at once: a chain that stands still would be folded away.
    chains = _looped(b, steps, [const(vector, n + 3.0) for n in range(CHAINS)], step)
    store(b, sink, reduce(b.fadd, chains), 4)


def _looped(b: ir.IRBuilder, steps: Any, starts: Sequence[Any], step: _Step) -> list[Any]:
    """Every value after `steps` applications of `step`."""
    places: list[Any] = [cgutils.alloca_once_value(b, start) for start in starts]
    with cgutils.for_range(b, steps):
        for place in places:
            b.store(step(b, b.load(place)), place)
    return [b.load(place) for place in places]
