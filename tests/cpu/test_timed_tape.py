"""Timed tapes: the same results, and times in the order that things happened in; the clock and where there is none."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from cpu_harness import BEST, Array, Runner
from llvmlite import ir

from minfer_kernels.cpu.compiler.features import HostFeatures, Isa, Machine
from minfer_kernels.cpu.runner.tape import TapeBuilder
from minfer_kernels.cpu.runner.timing import Clock, ClockError, TimedTape
from minfer_kernels.cpu.simd.clock import ticks

Cpu = Mapping[Isa, Runner]
ROWS, WIDTH = 24, 64


def doubling(runner: Runner, n: int, barriers: list[bool]) -> tuple[Any, Array, list[Array]]:
    """A tape whose instruction i doubles buffer i into buffer i + 1; its input and what it keeps alive."""
    buffers = [np.zeros((ROWS, WIDTH), np.float32) for _ in range(n + 1)]
    rows = np.array([ROWS], np.int32)
    builder = TapeBuilder(runner.library)
    for i in range(n):
        builder.emit(
            "elementwise.scale", x=buffers[i].ctypes.data, out=buffers[i + 1].ctypes.data, rows_at=rows.ctypes.data,
            width=WIDTH, x_stride=4 * WIDTH, out_stride=4 * WIDTH, factor=2.0, barrier=barriers[i], label=f"double {i}",
        )  # fmt: skip
    return builder.build(), buffers[0], [*buffers, rows]


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_a_timed_tape_does_the_same_in_the_order_it_says(cpu: Cpu, n_threads: int) -> None:
    runner, n = cpu[BEST], 9
    tape, source, keep = doubling(runner, n, [True] * n)
    timed = TimedTape(tape, runner.library, n_threads)
    for start in (1.0, 3.0):
        source[:] = start
        before = perf_counter()
        times = timed.run(runner.pool(n_threads))
        after = perf_counter()
        assert (keep[n] == start * 2**n).all()
        assert before <= times.began < times.ended <= after
        enter, leave = times.spans[:, :, 0], times.spans[:, :, 1]
        assert times.spans.shape == (n_threads, n, 2)
        assert (enter < leave).all()
        # Behind a barrier nobody enters the next instruction before everyone has left this one.
        assert (enter[:, 1:].min(axis=0) >= leave[:, :-1].max(axis=0)).all()
        assert (times.done >= leave[:, -1].max()).all()


def test_times_are_on_the_caller_s_clock(cpu: Cpu) -> None:
    runner = cpu[BEST]
    clock = Clock(runner.library)
    tape, _, _keep = doubling(runner, 4, [True] * 4)
    timed = TimedTape(tape, runner.library, 2)
    runs = [timed.run(runner.pool(2)) for _ in range(20)]
    slack = 20e-6  # two clocks, read one after the other
    for times in runs:
        spans, done = clock.seconds(times.spans), clock.seconds(times.done)
        assert times.began - slack <= spans.min()
        assert done.max() <= times.ended + slack
    assert clock.seconds(runs[0].spans).min() < clock.seconds(runs[-1].spans).min()


def test_earlier_times_stay_as_they_were(cpu: Cpu) -> None:
    runner = cpu[BEST]
    tape, _, _keep = doubling(runner, 3, [True] * 3)
    timed = TimedTape(tape, runner.library, 1)
    first = timed.run(runner.pool(1))
    kept = first.spans.copy()
    second = timed.run(runner.pool(1))
    assert (first.spans == kept).all()
    assert (second.spans > first.spans).all()


def test_barriers_stay_where_they_were(cpu: Cpu) -> None:
    runner = cpu[BEST]
    flags = [True, False, False, True]
    tape, _, _keep = doubling(runner, 4, flags)
    timed = TimedTape(tape, runner.library, 1)
    assert [i.barrier for i in timed._timed.instructions] == [*flags, False]
    assert [i.kernel for i in timed._timed.instructions] == ["clock.timed"] * 4 + ["clock.now"]


def test_a_pool_of_another_size_is_refused(cpu: Cpu) -> None:
    runner = cpu[BEST]
    tape, _, _keep = doubling(runner, 1, [True])
    with pytest.raises(ValueError, match="timed for 3 threads can't run on 2"):
        TimedTape(tape, runner.library, 3).run(runner.pool(2))


def machine(triple: str) -> Machine:
    return Machine.for_isa(HostFeatures(triple, "generic", frozenset(), "linux"), Isa.PORTABLE)


def assembly(triple: str) -> str:
    """What reading the clock becomes on a machine."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.IntType(64), []), "clock")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(ticks.emit(machine(triple), builder, []))
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple).create_target_machine()
    return target.emit_assembly(llvm.parse_assembly(str(module)))


def test_the_clock_is_the_counter_that_a_process_may_read() -> None:
    assert "rdtsc" in assembly("x86_64-unknown-linux-gnu")
    # PMCCNTR_EL0, the other candidate, traps in a user's process.
    assert "cntvct_el0" in assembly("aarch64-unknown-linux-gnu").lower()
    unknown = ticks.emit(machine("riscv64-unknown-linux-gnu"), ir.IRBuilder(), [])
    assert isinstance(unknown, ir.Constant)
    assert unknown.constant == 0


def test_a_machine_without_a_counter_is_refused() -> None:
    def read_zero(_args: int, _tid: int, _n_threads: int) -> None:
        """What the kernel does where there is no counter: the word stays 0."""

    entry = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(read_zero)
    address = ctypes.cast(entry, ctypes.c_void_p).value
    library: Any = SimpleNamespace(
        load=lambda names: {name: SimpleNamespace(address=address) for name in names},
        machine=machine("riscv64-unknown-linux-gnu"),
    )
    with pytest.raises(ClockError, match="can't be timed on riscv64: no counter"):
        Clock(library)
