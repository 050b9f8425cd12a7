"""Walking a tape: every thread calls every kernel in order and meets the others after flagged instructions.

A family constant says how a thread waits: `futex<N>` (Linux, N is SYS_futex) or `sleep` (anywhere).
The words of the shared block are laid out in `minfer_kernels.cpu.runner.sync_block`, those of an instruction in
`minfer_kernels.cpu.runner.instruction`.

A thread that waits for others asks for the weights that it reads next: decoding is bound by memory, which would stand
idle meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.compiler.kernel import Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.kernels.parts.rows import first_item
from minfer_kernels.cpu.runner.instruction import (
    ARGUMENTS,
    BARRIER,
    INSTRUCTION_BYTES,
    ITEM_BYTES,
    ITEMS,
    KERNEL,
    WEIGHTS,
)
from minfer_kernels.cpu.runner.sync_block import (
    ACTIVE,
    ARRIVALS,
    GENERATION,
    GENERATION_SLEEPERS,
    PHASE,
    PHASE_SLEEPERS,
    PROGRAM,
    QUIT,
    START,
    STOP,
    WORKER_BYTES,
    WORKERS,
)
from minfer_kernels.cpu.simd import inline, load_i64, prefetch_l2, smaller
from minfer_kernels.cpu.simd.atomics import (
    atomic_add,
    atomic_load,
    atomic_store,
    call_kernel,
    futex_wait,
    futex_wake,
    pause,
    sleep_microseconds,
)

# Longer spins starve a busy machine, shorter ones pay a wake-up at every barrier.
SPINS = 1500
# Bytes of the weights behind a barrier that a thread asks for while it waits: a part of any second cache. Decoding of
# SmolLM2 gained 2 % by it with two threads (400 rounds of 16 tokens in turns); asking for 64 KB in any case lost 2 %.
MOST_AHEAD = 1 << 17
# Bytes asked for between two looks at what is waited for.
AT_ONCE = 256
LINE = 64


@kernel_family
def run(waiting: str) -> Kernel:
    """Thread 0: publish the job to the first `n_threads`, walk it, and return when they all have."""
    walk, barrier, _, rouse_worker = _walker(waiting)

    @kernel
    def run(sync: Ptr, program: Ptr, start: Int, stop: Int, n_threads: Int) -> None:
        if n_threads > 1:
            atomic_store(sync + PROGRAM, program)
            atomic_store(sync + START, start)
            atomic_store(sync + STOP, stop)
            atomic_store(sync + ACTIVE, n_threads)
            for worker in range(1, n_threads):
                rouse_worker(sync, worker)
        walk(sync, program, start, stop, 0, n_threads)
        if n_threads > 1:
            barrier(sync, n_threads, 0, 0)

    return run


@kernel_family
def work(waiting: str) -> Kernel:
    """Another thread: wait for a job, walk it with those that take part, wait again; return when told to quit."""
    walk, barrier, await_change, _ = _walker(waiting)

    @kernel
    def work(sync: Ptr, tid: Int) -> None:
        generation, own = 0, sync + WORKERS + WORKER_BYTES * tid
        while True:
            await_change(own + GENERATION, generation, own + GENERATION_SLEEPERS)
            generation += 1
            if atomic_load(sync + QUIT) != 0:
                break
            start, stop, active = atomic_load(sync + START), atomic_load(sync + STOP), atomic_load(sync + ACTIVE)
            walk(sync, atomic_load(sync + PROGRAM), start, stop, tid, active)
            barrier(sync, active, 0, 0)

    return work


@kernel_family
def quit(waiting: str) -> Kernel:
    """Tell every worker of a pool of `n_threads` to return."""
    _, _, _, rouse_worker = _walker(waiting)

    @kernel
    def quit(sync: Ptr, n_threads: Int) -> None:
        atomic_store(sync + QUIT, 1)
        for worker in range(1, n_threads):
            rouse_worker(sync, worker)

    return quit


Inlined = Callable[..., Any]


def _walker(waiting: str) -> tuple[Inlined, Inlined, Inlined, Inlined]:
    sleep, rouse = _sleeping(waiting)

    @inline
    def await_change(word: int, value: int, sleepers: int) -> None:
        spins = 0
        while atomic_load(word) == value:
            spins += 1
            if spins < SPINS:
                pause()
            else:
                # Counting oneself before the kernel compares the word lets wakers skip the call when nobody sleeps.
                atomic_add(sleepers, 1)
                sleep(word, value)
                atomic_add(sleepers, -1)

    @inline
    def wake(word: int, sleepers: int) -> None:
        if atomic_load(sleepers) != 0:
            rouse(word)

    @inline
    def rouse_worker(sync: int, worker: int) -> None:
        own = sync + WORKERS + WORKER_BYTES * worker
        atomic_add(own + GENERATION, 1)
        wake(own + GENERATION, own + GENERATION_SLEEPERS)

    @inline
    def barrier(sync: int, n_threads: int, at: int, end: int) -> int:
        phase = atomic_load(sync + PHASE)
        if atomic_add(sync + ARRIVALS, 1) == n_threads - 1:
            atomic_store(sync + ARRIVALS, 0)
            atomic_add(sync + PHASE, 1)
            wake(sync + PHASE, sync + PHASE_SLEEPERS)
        else:
            while at < end and atomic_load(sync + PHASE) == phase:
                for line in range(0, AT_ONCE, LINE):
                    prefetch_l2(at + line)
                at += AT_ONCE
            await_change(sync + PHASE, phase, sync + PHASE_SLEEPERS)
        return at

    @inline
    def walk(sync: int, program: int, start: int, stop: int, tid: int, n_threads: int) -> None:
        weights, at, end = 0, 0, 0
        for index in range(start, stop):
            instruction = program + INSTRUCTION_BYTES * index
            call_kernel(load_i64(instruction + KERNEL), load_i64(instruction + ARGUMENTS), tid, n_threads)
            if n_threads == 1 or load_i64(instruction + BARRIER) == 0:
                continue
            if load_i64(instruction + WEIGHTS) != weights:
                weights = load_i64(instruction + WEIGHTS)
                items, item_bytes = load_i64(instruction + ITEMS), load_i64(instruction + ITEM_BYTES)
                at = weights + first_item(items, tid, n_threads) * item_bytes
                end = smaller(weights + first_item(items, tid + 1, n_threads) * item_bytes, at + MOST_AHEAD)
            at = barrier(sync, n_threads, at, end)

    return walk, barrier, await_change, rouse_worker


def _sleeping(waiting: str) -> tuple[Inlined, Inlined]:
    if waiting.startswith("futex"):
        number = int(waiting.removeprefix("futex"))

        @inline
        def sleep(word: int, value: int) -> None:
            futex_wait(number, word, value)

        @inline
        def rouse(word: int) -> None:
            futex_wake(number, word)

        return sleep, rouse

    @inline
    def nap(_word: int, _value: int) -> None:
        sleep_microseconds(50)

    @inline
    def let_them_find_out(_word: int) -> None:
        pass

    return nap, let_them_find_out
