"""Taking weights in: packing and copying on the backend's threads, straight from the rows of a file.

Every scale is looked at on the way: it lies beside the quants, so that costs nothing, where another pass would read
the whole file once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats.base import Bytes, Format
from minfer_ir.runtime.backend import NonFiniteWeightError
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.tape import TapeBuilder
from minfer_kernels.cpu.runner.threads import ThreadPool
from minfer_kernels.cpu.weights.arena import WeightArena
from minfer_kernels.cpu.weights.layouts import layout_of
from minfer_kernels.cpu.weights.pack_program import copy_program, pack_program
from minfer_kernels.cpu.weights.packing import PackedWeight, check_parts

KERNEL = "pack.pack"
BATCH_BYTES = 1 << 24
"""Packed bytes that wait to be made at once: small weights would have the threads wake up for each of them."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the kernel: its operands, and the arrays that they point into."""

    key: str
    operands: dict[str, Any]
    nonfinite: NDArray[np.int64]
    keep: tuple[object, ...]


class WeightPacker:
    """Packs and copies weights into the memory of `arena`; one call at a time.

    What `pack` and `copy` give has its bytes once `finish` was called.
    """

    def __init__(self, library: KernelLibrary, threads: ThreadPool, arena: WeightArena) -> None:
        self._library, self._threads, self._arena = library, threads, arena
        self._waiting: list[_Call] = []
        self._waiting_bytes = 0

    def pack(self, key: str, fmt: Format, parts: Sequence[Bytes], k: int) -> PackedWeight:
        """One weight, or several of the same format stacked row on row, as `fmt`'s layout for the library's
        instruction set has it.

        `parts` are GGUF row bytes, uint8 `[n_i, fmt.row_bytes(k)]`. Raises ValueError for parts that are not, and as
        `finish` does; `key` is the weight's name.
        """
        layout = layout_of(fmt.name, self._library.isa.lanes)
        check_parts(fmt, parts, k)
        n = sum(len(part) for part in parts)
        buffer = self._arena.take(layout.nbytes(n, k))
        padding = np.zeros(fmt.row_bytes(k), np.uint8)
        rows = _row_addresses(parts, padding, layout.groups(n) * layout.rows)
        shape = (layout.rows, k // layout.block, fmt.block_bytes, layout.block_bytes)
        self._add(key, buffer, pack_program(layout), rows, shape, (parts, padding))
        return PackedWeight(layout, n, k, buffer)

    def copy(self, key: str, fmt: Format, parts: Sequence[Bytes], k: int) -> Bytes:
        """The rows of `parts` as they are, one array `[n, row_bytes]`. Raises as `pack` does."""
        check_parts(fmt, parts, k)
        n, row_bytes = sum(len(part) for part in parts), fmt.row_bytes(k)
        copied = self._arena.take(n * row_bytes)
        rows = _row_addresses(parts, copied, n)
        shape = (1, k // fmt.block_size, fmt.block_bytes, fmt.block_bytes)
        self._add(key, copied, copy_program(fmt), rows, shape, (parts,))
        return copied.reshape(n, row_bytes)

    def finish(self) -> None:
        """Pack and copy what waits; NonFiniteWeightError, with its name, for a weight with a NaN or infinite scale."""
        calls, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not calls:
            return
        tape = TapeBuilder(self._library)
        for call in calls:
            tape.emit(KERNEL, barrier=False, label=call.key, **call.operands)  # no call reads what another one writes
        self._threads.run(tape.build())
        for call in calls:
            if call.nonfinite.any():
                raise NonFiniteWeightError(call.key)

    def forget(self) -> None:
        """Drop what waits: nothing refers to its source any more."""
        self._waiting.clear()

    def _add(
        self,
        key: str,
        out: Bytes,
        program: NDArray[np.int64],
        row_addresses: NDArray[np.int64],
        shape: tuple[int, int, int, int],
        keep: tuple[object, ...],
    ) -> None:
        rows, n_blocks, source_bytes, block_bytes = shape
        nonfinite = np.zeros(self._threads.n_threads, np.int64)
        operands = {
            "rows_at": row_addresses.ctypes.data,
            "out": out.ctypes.data,
            "program": program.ctypes.data,
            "nonfinite": nonfinite.ctypes.data,
            "terms": len(program),
            "rows": rows,
            "n_groups": len(row_addresses) // rows,
            "n_blocks": n_blocks,
            "source_bytes": source_bytes,
            "block_bytes": block_bytes,
        }
        self._waiting.append(_Call(key, operands, nonfinite, (*keep, out, program, row_addresses)))
        self._waiting_bytes += out.nbytes
        if self._waiting_bytes >= BATCH_BYTES:
            self.finish()


def _row_addresses(parts: Sequence[Bytes], padding: Bytes, n: int) -> NDArray[np.int64]:
    """The address of every row of `parts`, one after another, then that of `padding` up to `n`."""
    addresses = np.full(n, padding.ctypes.data, np.int64)
    start = 0
    for part in parts:
        addresses[start : start + len(part)] = part.ctypes.data + part.strides[0] * np.arange(len(part))
        start += len(part)
    return addresses
