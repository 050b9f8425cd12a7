"""Reading the clock: what a timed tape runs around every kernel."""

from __future__ import annotations

from minfer_kernels.cpu.compiler.kernel import Int, Ptr, kernel
from minfer_kernels.cpu.simd import store_i64
from minfer_kernels.cpu.simd.atomics import call_kernel
from minfer_kernels.cpu.simd.clock import ticks


@kernel
def timed(called: Ptr, arguments: Ptr, times: Ptr, thread_bytes: Int, tid: Int, n_threads: Int) -> None:
    """Call the kernel at `called` and note when this thread entered and left it.

    `times` holds the two int64 of thread 0; those of thread t lie t * `thread_bytes` behind.
    """
    at = times + tid * thread_bytes
    store_i64(at, ticks())
    call_kernel(called, arguments, tid, n_threads)
    store_i64(at + 8, ticks())


@kernel
def now(times: Ptr, thread_bytes: Int, tid: Int, n_threads: Int) -> None:
    """Note the time, an int64 per thread."""
    store_i64(times + tid * thread_bytes, ticks())
