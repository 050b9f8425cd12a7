"""A pool of native threads that walk tapes together."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from minfer_kernels.cpu.compiler.features import Machine
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.sync_block import SYNC_ALIGNMENT, sync_bytes
from minfer_kernels.cpu.runner.tape import Tape

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_FUTEX_SYSCALL = {"x86_64": 202, "aarch64": 98}


def waiting_of(machine: Machine) -> str:
    """How threads wait on this machine: the constant of the walker's kernel family."""
    number = _FUTEX_SYSCALL.get(machine.arch) if machine.os == "linux" else None
    return "sleep" if number is None else f"futex{number}"


class ThreadPool:
    """`n_threads` threads, the caller's among them, that walk one tape at a time; close it or use `with`.

    Workers are Python threads that stay inside one native call (without the GIL) and sleep between jobs. A pool
    does not survive a fork: use the spawn start method, or make the pool in the child. `choose` says with how many of
    the threads to walk, before every walk; `walks` counts them by that number.
    """

    def __init__(self, library: KernelLibrary, n_threads: int, choose: Callable[[], int] | None = None) -> None:
        if n_threads < 1:
            raise ValueError(f"n_threads must be at least 1, got {n_threads}")
        self.library, self.n_threads = library, n_threads
        waiting = waiting_of(library.machine)
        names = {role: f"walk.{role}[{waiting}]" for role in ("run", "work", "quit")}
        kernels = library.load(names.values())
        self._kernels = kernels
        self._run_entry = _ENTRY(kernels[names["run"]].address)
        self._sync = _aligned_zeros(sync_bytes(n_threads), SYNC_ALIGNMENT)
        sync = self._sync.ctypes.data
        self._block = np.array([sync, 0, 0, 0], np.int64)
        self._job = self._block.data
        self._calls = [tuple(map(ctypes.c_int64, (self._block.ctypes.data, 0, n))) for n in range(n_threads + 1)]
        self._choose = choose
        self.walks = [0] * (n_threads + 1)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        work_args = np.array([sync], np.int64)
        work = _ENTRY(kernels[names["work"]].address)
        self._workers = [
            threading.Thread(
                target=_work, args=(work, work_args, tid, n_threads, self._sync), name=f"minfer-{tid}", daemon=True
            )
            for tid in range(1, n_threads)
        ]
        quit_entry = _ENTRY(kernels[names["quit"]].address)
        keep = (kernels, self._sync)
        self._close = weakref.finalize(self, _stop, quit_entry, work_args, n_threads, self._workers, self._pid, keep)
        self._start()

    @property
    def closed(self) -> bool:
        """Whether the workers have been told to stop."""
        return not self._close.alive

    def run(self, tape: Tape, start: int = 0, stop: int | None = None, active: int | None = None) -> None:
        """Run the tape's instructions [start, stop) and return when all threads have; one caller at a time.

        The first `active` threads walk, and the others stay asleep; None: as many as the pool chooses. Ctrl-C is
        delivered after the instructions have run. Raises RuntimeError on a closed or forked pool, ValueError for a
        range outside the tape or a number of threads that the pool doesn't have.
        """
        end = len(tape) if stop is None else stop
        if not 0 <= start <= end <= len(tape):
            raise ValueError(f"instructions [{start}, {end}) are not within the tape's {len(tape)}")
        if active is None:
            active = self.n_threads if self._choose is None else self._choose()
        if not 1 <= active <= self.n_threads:
            raise ValueError(f"{active} active threads of a pool of {self.n_threads}")
        if os.getpid() != self._pid:  # before the lock: whoever held it isn't here
            raise RuntimeError("this thread pool was made before a fork and has no threads here; use spawn")
        with self._lock:
            self._check_usable()
            job = self._job
            job[1], job[2], job[3] = tape.address, start, end
            self.walks[active] += 1
            self._run_entry(*self._calls[active])

    def close(self) -> None:
        """Stop the workers and wait for them; safe to call twice, and in a forked process, which has none."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._close()

    def _start(self) -> None:
        """Start the workers; when one can't start, those before it are stopped and RuntimeError says which."""
        for worker in self._workers:
            try:
                worker.start()
            except BaseException as error:
                self._close()
                if not isinstance(error, RuntimeError | OSError | MemoryError):
                    raise
                place = f"thread {worker.name} of a pool of {self.n_threads}"
                raise RuntimeError(f"could not start {place}: {error}; ask for fewer threads") from error

    def _check_usable(self) -> None:
        if self.closed:
            raise RuntimeError("this thread pool is closed")

    def __enter__(self) -> ThreadPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _work(entry: Any, args: Any, tid: int, n_threads: int, _sync: Any) -> None:
    entry(args.ctypes.data, tid, n_threads)


def _stop(quit_entry: Any, args: Any, n_threads: int, workers: list[threading.Thread], pid: int, _keep: Any) -> None:
    if os.getpid() != pid:
        return
    quit_entry(args.ctypes.data, 0, n_threads)
    for worker in workers:
        if worker.ident is not None:
            worker.join()


def _aligned_zeros(size: int, alignment: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    raw = np.zeros(size + alignment, np.uint8)
    skip = -raw.ctypes.data % alignment
    return raw[skip : skip + size]
