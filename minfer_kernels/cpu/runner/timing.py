"""When each thread entered and left each instruction of a tape.

A timed tape calls the same kernels with the same arguments, each through one that reads the clock before and after:
some 0.2 us an instruction when weights have swept the caches. The walker doesn't know: what isn't timed pays nothing.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from time import perf_counter, sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_kernels.cpu.compiler.features import Machine
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.sync_block import SYNC_ALIGNMENT
from minfer_kernels.cpu.runner.tape import Tape, TapeBuilder
from minfer_kernels.cpu.runner.threads import ThreadPool

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_LINE_WORDS = SYNC_ALIGNMENT // 8
_CALIBRATION_SECONDS = 0.02


class ClockError(RuntimeError):
    """This machine has no counter that a process may read."""


class Clock:
    """Ticks of the core's counter as seconds of `perf_counter`; raises ClockError where there is no counter."""

    def __init__(self, library: KernelLibrary) -> None:
        self._kernel = library.load(["clock.now"])["clock.now"]
        self._entry = _ENTRY(self._kernel.address)
        self._word = np.zeros(1, np.int64)
        self._arguments = np.array([self._word.ctypes.data, 0], np.int64)
        self._first = self._pair()
        _check_running(library.machine, self._first[0])

    def seconds(self, ticks: NDArray[np.int64]) -> NDArray[np.float64]:
        """The times on the clock of `perf_counter`."""
        start_ticks, start = self._first
        # Too short a base would make the rate of the two clocks a guess.
        sleep(max(0.0, _CALIBRATION_SECONDS - (perf_counter() - start)))
        end_ticks, end = self._pair()
        rate = (end - start) / (end_ticks - start_ticks)
        return (start + (ticks - start_ticks) * rate).astype(np.float64)

    def _pair(self) -> tuple[int, float]:
        """(ticks, seconds) of one moment: the tightest of several tries."""
        return min((self._read() for _ in range(50)), key=lambda read: read[2])[:2]

    def _read(self) -> tuple[int, float, float]:
        before = perf_counter()
        self._entry(self._arguments.ctypes.data, 0, 1)
        after = perf_counter()
        return int(self._word[0]), (before + after) / 2, after - before


def _check_running(machine: Machine, ticks: int) -> None:
    if ticks == 0:
        raise ClockError(f"instructions can't be timed on {machine.arch}: no counter that a process may read is known")


@dataclass(frozen=True, slots=True)
class TapeTimes:
    """One walk of a tape, in ticks.

    `spans` `[n_threads, n_instructions, 2]` int64: when each thread entered and left each instruction; `done`
    `[n_threads]`: when it was past the last barrier. `began` and `ended` are the caller's `perf_counter` around it.
    """

    began: float
    ended: float
    spans: NDArray[np.int64]
    done: NDArray[np.int64]


class TimedTape:
    """`tape`, with times taken; runs on pools of `n_threads` threads."""

    def __init__(self, tape: Tape, library: KernelLibrary, n_threads: int) -> None:
        self.tape, self.n_threads = tape, n_threads
        words = -(-(2 * len(tape) + 1) // _LINE_WORDS) * _LINE_WORDS
        # Threads write to cache lines of their own.
        raw = np.zeros(n_threads * words + _LINE_WORDS, np.int64)
        skip = -raw.ctypes.data % SYNC_ALIGNMENT // 8
        self._times = raw[skip : skip + n_threads * words].reshape(n_threads, words)
        self._timed = self._build(library)

    def run(self, pool: ThreadPool) -> TapeTimes:
        """Walk the tape; ValueError for a pool of another size."""
        if pool.n_threads != self.n_threads:
            raise ValueError(f"a tape timed for {self.n_threads} threads can't run on {pool.n_threads}")
        began = perf_counter()
        pool.run(self._timed, active=self.n_threads)
        ended = perf_counter()
        n, times = len(self.tape), self._times.copy()
        return TapeTimes(began, ended, times[:, : 2 * n].reshape(self.n_threads, n, 2), times[:, 2 * n])

    def _build(self, library: KernelLibrary) -> Tape:
        builder, base, step = TapeBuilder(library), self._times.ctypes.data, self._times.strides[0]
        calls = zip(self.tape.program[:, :3].tolist(), self.tape.instructions, strict=True)
        for index, ((kernel, arguments, barrier), instruction) in enumerate(calls):
            place: dict[str, Any] = {"times": base + 16 * index, "thread_bytes": step}
            builder.emit(
                "clock.timed",
                called=kernel,
                arguments=arguments,
                **place,
                barrier=bool(barrier),
                weights=instruction.weights,
            )
        builder.emit("clock.now", times=base + 16 * len(self.tape), thread_bytes=step, barrier=False)
        return builder.build()
