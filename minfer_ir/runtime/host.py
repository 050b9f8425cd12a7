"""Buffers in host memory: what the CPU and numpy backends share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from minfer_ir.dtypes import DType
from minfer_ir.formats.base import Bytes
from minfer_ir.opspec import Array
from minfer_ir.runtime.backend import BackendError, BufRef, MemoryInfo
from minfer_ir.types import TensorType

ALIGNMENT = 64


class HostBuffers:
    """Owns aligned byte buffers by append-only id."""

    def __init__(self) -> None:
        self._buffers: dict[int, Bytes] = {}
        self._next = 0

    def allocate(self, nbytes: int) -> int:
        """A new zeroed buffer, 64-byte aligned; raises BackendError when memory is out."""
        try:
            raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
        except MemoryError:
            raise BackendError(f"out of memory asking for {nbytes / 2**20:.1f} MiB") from None
        start = -raw.ctypes.data % ALIGNMENT
        self._buffers[self._next] = raw[start : start + nbytes]
        self._next += 1
        return self._next - 1

    def free(self, buffer: int) -> None:
        """Drop a buffer; using its id afterwards is an error."""
        self.bytes_of(buffer)
        del self._buffers[buffer]

    def bytes_of(self, buffer: int) -> Bytes:
        """The buffer's bytes; raises BackendError for an id that was freed or never given out."""
        if buffer not in self._buffers:
            state = "was freed" if 0 <= buffer < self._next else "never existed"
            raise BackendError(f"buffer {buffer} {state}")
        return self._buffers[buffer]

    def address(self, ref: BufRef) -> int:
        """The address of the window's first byte."""
        return self.bytes_of(ref.buffer).ctypes.data + ref.offset

    def window(self, ref: BufRef, kind: TensorType, n_rows: int | None = None) -> Array:
        """The window as an array over the buffer itself, in storage form; `n_rows` cuts axis 0."""
        shape = kind.shape if n_rows is None else (n_rows, *kind.shape[1:])
        if isinstance(kind.dtype, DType):
            storage, strides = kind.dtype.storage, ref.strides
        else:
            shape = (*shape[:-1], kind.dtype.row_bytes(shape[-1]))
            storage, strides = np.dtype(np.uint8), (*ref.strides[:-1], 1)
        return np.ndarray(shape, storage, self.bytes_of(ref.buffer).data, ref.offset, strides)

    def write(self, ref: BufRef, data: Array) -> None:
        """Copy rows in storage form to the front of a contiguous or row-strided window."""
        strides = ref.strides if data.dtype != np.uint8 else (*ref.strides[:-1], 1)
        np.ndarray(data.shape, data.dtype, self.bytes_of(ref.buffer).data, ref.offset, strides)[...] = data

    def read(self, ref: BufRef, kind: TensorType, n_rows: int | None = None) -> Array:
        """A copy of the window in storage form."""
        return self.window(ref, kind, n_rows).copy()

    def copy_cells(self, ref: BufRef, row_bytes: int, moves: Sequence[tuple[int, int, int]]) -> None:
        """Move runs of KV rows, (from, to, count) each, as if every row were read before any is written."""
        region = self.bytes_of(ref.buffer)[ref.offset : ref.offset + ref.length].reshape(-1, row_bytes)
        for move in moves:
            if min(move) < 0 or max(move[0], move[1]) + move[2] > len(region):
                raise BackendError(f"cell move {move} leaves the region of {len(region)} cells")
        lifted = [region[source : source + count].copy() for source, _, count in moves]
        for (_, target, count), held in zip(moves, lifted, strict=True):
            region[target : target + count] = held


class HostBackend:
    """The part of the Backend protocol that every backend over host memory has."""

    def __init__(self) -> None:
        self.buffers = HostBuffers()

    def memory(self) -> MemoryInfo:
        """Host memory."""
        return host_memory()

    def allocate(self, nbytes: int) -> int:
        """A zeroed host buffer."""
        return self.buffers.allocate(nbytes)

    def free(self, buffer: int) -> None:
        """Drop a host buffer."""
        self.buffers.free(buffer)

    def write(self, ref: BufRef, data: Array) -> None:
        """Copy rows into a window."""
        self.buffers.write(ref, data)

    def read(self, ref: BufRef, kind: TensorType, n_rows: int | None = None, copy: bool = True) -> Array:
        """Copy rows out of a window, or give the window itself."""
        return self.buffers.read(ref, kind, n_rows) if copy else self.buffers.window(ref, kind, n_rows)

    def copy_cells(self, ref: BufRef, row_bytes: int, moves: Sequence[tuple[int, int, int]]) -> None:
        """Move KV rows."""
        self.buffers.copy_cells(ref, row_bytes, moves)


def host_memory(meminfo: Path = Path("/proc/meminfo")) -> MemoryInfo:
    """Total and available host memory in bytes; unknown where /proc/meminfo is missing or unreadable."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        total, available = (int(lines[key].split()[0]) * 1024 for key in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError, IndexError):
        return MemoryInfo(None, None)
    return MemoryInfo(total, available)
