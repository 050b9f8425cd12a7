"""Runs kernels on numpy arrays whose memory ends where the process may not read on."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from minfer_kernels.cpu.compiler.features import HostFeatures, Isa
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.tape import TapeBuilder
from minfer_kernels.cpu.runner.threads import ThreadPool

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "test-kernels"
Array = NDArray[Any]
_PAGE = mmap.PAGESIZE
_HOST = HostFeatures.detect()
ISAS = [isa for isa in Isa if not _HOST.missing(isa)]
BEST = _HOST.best_isa()


def guarded(values: Array) -> Array:
    """A copy whose last byte is the last of its page; the next page faults on any access."""
    size = values.nbytes
    pages = -(-size // _PAGE) * _PAGE
    memory = mmap.mmap(-1, pages + _PAGE)
    raw = np.frombuffer(memory, np.uint8)
    protect = ctypes.CDLL(None).mprotect
    assert protect(ctypes.c_void_p(raw.ctypes.data + pages), ctypes.c_size_t(_PAGE), 0) == 0
    copy = raw[pages - size : pages].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def strided_rows(values: Array, gap: int) -> Array:
    """`values` (2 or more axes) with `gap` elements of 9 between rows, ending at a guarded page."""
    width = int(np.prod(values.shape[1:]))
    step = width + gap
    flat = guarded(np.full(max(len(values) * step - gap, 0), 9, values.dtype))
    inner = np.zeros(values.shape[1:], values.dtype).strides
    rows = as_strided(flat, values.shape, (step * values.itemsize, *inner))
    rows[...] = values
    return rows


def gaps_untouched(rows: Array) -> bool:
    """Whether the elements between the rows of `strided_rows` are still 9."""
    width = int(np.prod(rows.shape[1:]))
    gap = rows.strides[0] // rows.itemsize - width
    if len(rows) < 2 or gap == 0:
        return True
    first = rows.ctypes.data + width * rows.itemsize
    flat = (ctypes.c_char * ((len(rows) - 1) * rows.strides[0] - width * rows.itemsize)).from_address(first)
    elements = np.frombuffer(bytes(flat), rows.dtype)
    return bool(all((elements[i * (width + gap) :][:gap] == 9).all() for i in range(len(rows) - 1)))


class Runner:
    """Kernels of one instruction set on one, two or three threads."""

    def __init__(self, isa: Isa) -> None:
        self.library = KernelLibrary(isa, CACHE)
        self._stack = ExitStack()
        self._pools: dict[int, ThreadPool] = {}

    def __repr__(self) -> str:
        return f"Runner({self.library.isa})"

    def pool(self, n_threads: int) -> ThreadPool:
        if n_threads not in self._pools:
            self._pools[n_threads] = self._stack.enter_context(ThreadPool(self.library, n_threads))
        return self._pools[n_threads]

    def run(self, kernel: str, n_threads: int = 1, **operands: Any) -> None:
        """One call; arrays stand for their addresses."""
        builder = TapeBuilder(self.library)
        words: dict[str, Any] = {name: _operand(value) for name, value in operands.items()}
        builder.emit(kernel, **words)
        self.pool(n_threads).run(builder.build())

    def close(self) -> None:
        self._stack.close()


def _operand(value: Any) -> int | float:
    return value.ctypes.data if isinstance(value, np.ndarray) else value


@contextmanager
def runners() -> Iterator[Mapping[Isa, Runner]]:
    made = {isa: Runner(isa) for isa in ISAS}
    yield made
    for runner in made.values():
        runner.close()


# Every way a kernel can run here: the first is what the others are compared with.
VARIANTS = [(BEST, 1), (BEST, 2), (BEST, 3), (Isa.PORTABLE, 1)]
