"""The thread pool: barriers under stress, partial runs, closing, forking, interrupts, process exit."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from cpu_harness import BEST, CACHE, Array, Runner

from minfer_kernels.cpu.compiler.features import HostFeatures, Isa, Machine
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.cores import cpu_quota, default_threads
from minfer_kernels.cpu.runner.tape import NOTHING, Stretch, Tape, TapeBuilder
from minfer_kernels.cpu.runner.threads import ThreadPool, waiting_of

Cpu = Mapping[Isa, Runner]
ROWS, WIDTH = 48, 16


class Ring:
    """Two buffers of rows; each instruction adds the row before to a constant, so every thread needs the others'."""

    def __init__(self, library: KernelLibrary, instructions: int, weights: Stretch = NOTHING) -> None:
        self.buffers = np.zeros((2, ROWS + 1, WIDTH), np.float32)
        self.one = np.ones(WIDTH, np.float32)
        self.rows = np.array([ROWS], np.int32)
        builder = TapeBuilder(library)
        for i in range(instructions):
            source, target = self.buffers[i % 2], self.buffers[1 - i % 2]
            builder.emit(
                "elementwise.add", x=source.ctypes.data, y=self.one.ctypes.data, out=target[1:].ctypes.data,
                rows_at=self.rows.ctypes.data, width=WIDTH, x_stride=4 * WIDTH, y_stride=0, out_stride=4 * WIDTH,
                weights=weights,
            )  # fmt: skip
        self.tape: Tape = builder.build()

    def reset(self) -> None:
        self.buffers[:] = 0

    def expected(self, instructions: int) -> Array:
        """Row r holds the number of additions since the zeros in row 0."""
        return np.minimum(np.arange(ROWS + 1), instructions).astype(np.float32)

    def rows_after(self, instructions: int) -> Array:
        return self.buffers[instructions % 2][:, 0]


@pytest.mark.parametrize("n_threads", [1, 2, 3, 5])
@pytest.mark.parametrize("weights", [NOTHING, Stretch(64, 1 << 20, 4096)], ids=["nothing ahead", "no memory ahead"])
def test_every_instruction_sees_all_of_the_one_before(cpu: Cpu, n_threads: int, weights: Stretch) -> None:
    """Also while threads that wait ask for weights; asking reads nothing, so an address without memory does no harm."""
    n = 1000
    ring = Ring(cpu[BEST].library, n, weights)
    with ThreadPool(cpu[BEST].library, n_threads) as pool:
        for _ in range(2):
            ring.reset()
            pool.run(ring.tape)
            assert ring.rows_after(n).tolist() == ring.expected(n).tolist()


def test_other_systems_way_of_waiting(cpu: Cpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minfer_kernels.cpu.runner.threads.waiting_of", lambda _machine: "sleep")
    ring = Ring(cpu[BEST].library, 60)
    with ThreadPool(cpu[BEST].library, 3) as pool:
        for _ in range(3):
            ring.reset()
            pool.run(ring.tape)
            assert ring.rows_after(60).tolist() == ring.expected(60).tolist()


def test_waiting_follows_the_system() -> None:
    def machine(triple: str, os: str) -> Machine:
        return Machine.for_isa(HostFeatures(triple, "generic", frozenset(), os), Isa.PORTABLE)

    assert waiting_of(machine("x86_64-unknown-linux-gnu", "linux")) == "futex202"
    assert waiting_of(machine("aarch64-unknown-linux-gnu", "linux")) == "futex98"
    assert waiting_of(machine("riscv64-unknown-linux-gnu", "linux")) == "sleep"
    assert waiting_of(machine("arm64-apple-darwin", "darwin")) == "sleep"


def test_many_short_runs(cpu: Cpu) -> None:
    ring = Ring(cpu[BEST].library, 2)
    with ThreadPool(cpu[BEST].library, 3) as pool:
        for i in range(500):
            ring.reset()
            pool.run(ring.tape)
            assert ring.rows_after(2).tolist() == ring.expected(2).tolist(), i


def test_a_tape_runs_step_by_step(cpu: Cpu) -> None:
    ring = Ring(cpu[BEST].library, 6)
    pool = cpu[BEST].pool(2)
    for step in range(6):
        pool.run(ring.tape, step, step + 1)
        assert ring.rows_after(step + 1).tolist() == ring.expected(step + 1).tolist()
    pool.run(ring.tape, 6)
    for start, stop in ((-1, 2), (0, 7), (4, 3)):
        with pytest.raises(ValueError, match=rf"\[{start}, {stop}\) are not within the tape's 6"):
            pool.run(ring.tape, start, stop)


def test_any_number_of_the_threads_may_walk_and_the_rest_sleeps(cpu: Cpu) -> None:
    n = 60
    ring = Ring(cpu[BEST].library, n)
    with ThreadPool(cpu[BEST].library, 4) as pool:
        for active in (1, 4, 2, 3, 1, 1, 4, 2):
            ring.reset()
            pool.run(ring.tape, active=active)
            assert ring.rows_after(n).tolist() == ring.expected(n).tolist()
        assert pool.walks == [0, 3, 2, 1, 2]
        for active in (0, 5):
            with pytest.raises(ValueError, match=f"{active} active threads of a pool of 4"):
                pool.run(ring.tape, active=active)


def test_the_pool_asks_before_every_walk(cpu: Cpu) -> None:
    ring, chosen = Ring(cpu[BEST].library, 4), iter([2, 1, 3])
    with ThreadPool(cpu[BEST].library, 3, lambda: next(chosen)) as pool:
        for _ in range(3):
            pool.run(ring.tape)
        assert pool.walks == [0, 1, 1, 1]
        pool.run(ring.tape, active=2)
        assert pool.walks == [0, 1, 2, 1]


def who_walked(library: KernelLibrary, pool: ThreadPool, active: int) -> list[int]:
    """The threads that took part, as each notes the time that it was there."""
    tape, times = TapeBuilder(library), np.zeros((pool.n_threads, 16), np.int64)
    tape.emit("clock.now", times=times.ctypes.data, thread_bytes=times.strides[0])
    pool.run(tape.build(), active=active)
    return np.flatnonzero(times[:, 0]).tolist()


@pytest.mark.parametrize("active", [1, 2, 3, 5])
def test_only_the_first_threads_take_part(cpu: Cpu, active: int) -> None:
    library = cpu[BEST].library
    with ThreadPool(library, 5) as pool:
        assert who_walked(library, pool, active) == list(range(active))


def test_callers_take_turns(cpu: Cpu) -> None:
    pool = cpu[BEST].pool(2)
    rings = [Ring(cpu[BEST].library, 200) for _ in range(3)]
    callers = [threading.Thread(target=pool.run, args=(ring.tape,)) for ring in rings]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all(r.rows_after(200).tolist() == r.expected(200).tolist() for r in rings)


def test_closing_ends_the_threads_and_refuses_more_work(cpu: Cpu) -> None:
    library = cpu[BEST].library
    ring = Ring(library, 4)
    before = threading.active_count()
    for _ in range(3):
        pool = ThreadPool(library, 4)
        assert threading.active_count() == before + 3
        pool.run(ring.tape)
        pool.close()
        pool.close()
        assert pool.closed and threading.active_count() == before
        with pytest.raises(RuntimeError, match="closed"):
            pool.run(ring.tape)


def test_a_forgotten_pool_ends_its_threads(cpu: Cpu) -> None:
    before = threading.active_count()
    pool = ThreadPool(cpu[BEST].library, 3)
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    assert gone() is None and threading.active_count() == before


def test_one_thread_starts_none(cpu: Cpu) -> None:
    before = threading.active_count()
    with ThreadPool(cpu[BEST].library, 1):
        assert threading.active_count() == before
    with pytest.raises(ValueError, match="at least 1, got 0"):
        ThreadPool(cpu[BEST].library, 0)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (
            RuntimeError("can't start new thread"),
            "could not start thread minfer-3 of a pool of 8: can't start new thread",
        ),
        (MemoryError(), "could not start thread minfer-3 of a pool of 8"),
        (KeyboardInterrupt("now"), "^now$"),
    ],
)
def test_a_thread_that_cannot_start_leaves_none_behind(
    cpu: Cpu, monkeypatch: pytest.MonkeyPatch, failure: BaseException, expected: str
) -> None:
    start, before = threading.Thread.start, threading.active_count()

    def failing(thread: threading.Thread) -> None:
        if thread.name == "minfer-3":
            raise failure
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", failing)
        kind = RuntimeError if isinstance(failure, Exception) else type(failure)
        with pytest.raises(kind, match=expected):
            ThreadPool(cpu[BEST].library, 8)
    assert threading.active_count() == before
    ring = Ring(cpu[BEST].library, 10)
    with ThreadPool(cpu[BEST].library, 4) as pool:
        pool.run(ring.tape)
    assert ring.rows_after(10).tolist() == ring.expected(10).tolist()


def test_an_exception_inside_with_still_closes(cpu: Cpu) -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), ThreadPool(cpu[BEST].library, 2):
        _ = 1 / 0
    assert threading.active_count() == before


class InterruptedRunError(Exception):
    """Stands for KeyboardInterrupt, which would also stop the runner of the tests."""


def interrupt(_signal: int, _frame: object) -> None:
    raise InterruptedRunError


def test_an_interrupt_arrives_after_the_run_and_leaves_the_pool_whole(cpu: Cpu) -> None:
    n = 2000
    ring = Ring(cpu[BEST].library, n)
    previous = signal.signal(signal.SIGALRM, interrupt)
    with ThreadPool(cpu[BEST].library, 2) as pool:
        try:
            with pytest.raises(InterruptedRunError):
                signal.setitimer(signal.ITIMER_REAL, 1e-4)
                while True:
                    pool.run(ring.tape)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        ring.reset()
        pool.run(ring.tape)
        assert ring.rows_after(n).tolist() == ring.expected(n).tolist()


SETUP = f"""
import os, sys
from pathlib import Path
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.tape import TapeBuilder
from minfer_kernels.cpu.runner.threads import ThreadPool
library = KernelLibrary(None, Path({str(CACHE)!r}))
tape = TapeBuilder(library).build()
pool = ThreadPool(library, 3)
pool.run(tape)
"""


def exit_status(script: str) -> int:
    return subprocess.run([sys.executable, "-c", SETUP + script], timeout=120, check=False).returncode


def test_a_process_ends_with_an_open_pool() -> None:
    assert exit_status("sys.exit(7)") == 7


def test_a_process_dies_of_its_exception_with_an_open_pool() -> None:
    assert exit_status("raise SystemExit(9)") == 9


def test_a_forked_child_is_told_instead_of_hanging() -> None:
    script = """
child = os.fork()
if child == 0:
    try:
        pool.run(tape)
    except RuntimeError as error:
        os._exit(5 if "fork" in str(error) else 6)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert exit_status(script) == 5


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_default_threads_counts_cores_within_the_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 4, 5, 6})
    cpus, cgroup = tmp_path / "cpu", tmp_path / "cgroup"
    for cpu in range(8):
        write(cpus / f"cpu{cpu}/topology/physical_package_id", "0\n")
        write(cpus / f"cpu{cpu}/topology/core_id", f"{cpu % 4}\n")
    assert default_threads(cpus, cgroup) == 3
    assert default_threads(tmp_path / "none", cgroup) == 5
    for quota, expected in (("max 100000", 3), ("250000 100000", 2), ("50000 100000", 1)):
        write(cgroup / "cpu.max", quota)
        assert default_threads(cpus, cgroup) == expected


def test_quota_of_the_older_cgroups(tmp_path: Path) -> None:
    write(tmp_path / "cpu/cpu.cfs_quota_us", "-1\n")
    write(tmp_path / "cpu/cpu.cfs_period_us", "100000\n")
    assert cpu_quota(tmp_path) is None
    write(tmp_path / "cpu/cpu.cfs_quota_us", "150000\n")
    assert cpu_quota(tmp_path) == 1.5
