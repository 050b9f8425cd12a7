"""What the machine can do at best: reading memory, and multiply-adds from registers."""

from __future__ import annotations

from minfer_kernels.cpu.compiler.kernel import Int, Kernel, Ptr, kernel, kernel_family
from minfer_kernels.cpu.kernels.parts.rows import first_item
from minfer_kernels.cpu.simd import f32, load_f32x8, prefetch, splat_f32x8, store_f32x8
from minfer_kernels.cpu.simd.peaks import f32_peak, int8_peak

READ_CHUNK = 256
"""Bytes that the read loop takes at a time."""


@kernel_family
def read(ahead: int) -> Kernel:
    """Read `chunks` chunks of READ_CHUNK bytes at x, `passes` times, each thread its own stretch of them.

    Prefetches `ahead` bytes before what is read (0: the hardware's prefetcher alone). `sink` has 32 bytes a thread,
    whose content means nothing.
    """

    @kernel
    def body(x: Ptr, sink: Ptr, chunks: Int, passes: Int, tid: Int, n_threads: Int) -> None:
        first, end = first_item(chunks, tid, n_threads), first_item(chunks, tid + 1, n_threads)
        zero = splat_f32x8(f32(0.0))
        a, b, c, d = zero, zero, zero, zero
        for _ in range(passes):
            for chunk in range(first, end):
                p = x + READ_CHUNK * chunk
                if ahead:
                    prefetch(p + ahead)
                    prefetch(p + ahead + 64)
                    prefetch(p + ahead + 128)
                    prefetch(p + ahead + 192)
                a = a + (load_f32x8(p) + load_f32x8(p + 32))
                b = b + (load_f32x8(p + 64) + load_f32x8(p + 96))
                c = c + (load_f32x8(p + 128) + load_f32x8(p + 160))
                d = d + (load_f32x8(p + 192) + load_f32x8(p + 224))
        store_f32x8(sink + 32 * tid, (a + b) + (c + d))

    return body


@kernel
def multiply_int8(sink: Ptr, steps: Int, tid: Int, n_threads: Int) -> None:
    """`steps` steps of `int8_peak` on every thread; `sink` has 64 bytes a thread."""
    int8_peak(steps, sink + 64 * tid)


@kernel
def multiply_f32(sink: Ptr, steps: Int, tid: Int, n_threads: Int) -> None:
    """`steps` steps of `f32_peak` on every thread; `sink` has 64 bytes a thread."""
    f32_peak(steps, sink + 64 * tid)
