"""Buffers that are torch tensors, and typed windows of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from minfer_ir.dtypes import DType
from minfer_ir.opspec import Array
from minfer_ir.runtime.backend import BackendError, BufRef
from minfer_ir.types import TensorType

ALIGNMENT = 256
"""Of every buffer, in bytes: what a CUDA allocation has, and what wide loads of any device ask for."""
TORCH_TYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i8": torch.int8,
    "i16": torch.int16,
    "u8": torch.uint8,
    "i32": torch.int32,
    "i64": torch.int64,
}


class TensorBuffers:
    """Owns byte buffers on one torch device, by append-only id; `generation` counts those that were given back."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.generation = 0
        self._buffers: dict[int, torch.Tensor] = {}
        self._next = 0

    def allocate(self, nbytes: int) -> int:
        """A new zeroed buffer; raises BackendError when memory is out."""
        try:
            raw = torch.zeros(nbytes + ALIGNMENT, dtype=torch.uint8, device=self.device)
        except (RuntimeError, MemoryError) as error:
            raise BackendError(f"out of memory on {self.device} asking for {nbytes / 2**20:.1f} MiB: {error}") from None
        start = -raw.data_ptr() % ALIGNMENT
        self._buffers[self._next] = raw[start : start + nbytes]
        self._next += 1
        return self._next - 1

    def free(self, buffer: int) -> None:
        """Drop a buffer; using its id afterwards is an error."""
        self.bytes_of(buffer)
        del self._buffers[buffer]
        self.generation += 1

    def bytes_of(self, buffer: int) -> torch.Tensor:
        """The buffer's bytes; raises BackendError for an id that was freed or never given out."""
        if buffer not in self._buffers:
            state = "was freed" if 0 <= buffer < self._next else "never existed"
            raise BackendError(f"buffer {buffer} {state}")
        return self._buffers[buffer]

    def window(self, ref: BufRef, kind: TensorType, n_rows: int | None = None) -> torch.Tensor:
        """The window over the buffer itself, in storage form (blocks as uint8 rows); `n_rows` cuts axis 0."""
        shape = kind.shape if n_rows is None else (n_rows, *kind.shape[1:])
        if isinstance(kind.dtype, DType):
            return self._strided(ref, TORCH_TYPES[kind.dtype.name], kind.dtype.itemsize, shape, ref.strides)
        shape = (*shape[:-1], kind.dtype.row_bytes(shape[-1]))
        return self._strided(ref, torch.uint8, 1, shape, (*ref.strides[:-1], 1))

    def write(self, ref: BufRef, data: Array) -> None:
        """Copy rows in storage form to the front of a contiguous or row-strided window."""
        self.front(ref, data).copy_(from_numpy(data))

    def front(self, ref: BufRef, data: Array) -> torch.Tensor:
        """The part of a window that `data`, rows in storage form, would fill."""
        strides = ref.strides if data.dtype != np.uint8 else (*ref.strides[:-1], 1)
        return self._strided(ref, from_numpy(data.reshape(-1)[:0]).dtype, data.itemsize, data.shape, strides)

    def read(self, ref: BufRef, kind: TensorType, n_rows: int | None = None) -> Array:
        """A copy of the window on the host, in storage form."""
        return to_numpy(self.window(ref, kind, n_rows).detach().cpu()).copy()

    def cells(self, ref: BufRef, row_bytes: int, moves: Sequence[tuple[int, int, int]]) -> torch.Tensor:
        """The region as `[cells, row_bytes]` bytes; a move, (from, to, count), that leaves it raises BackendError."""
        region = self.bytes_of(ref.buffer)[ref.offset : ref.offset + ref.length].view(-1, row_bytes)
        for move in moves:
            if min(move) < 0 or max(move[0], move[1]) + move[2] > len(region):
                raise BackendError(f"cell move {move} leaves the region of {len(region)} cells")
        return region

    def _strided(
        self, ref: BufRef, dtype: torch.dtype, itemsize: int, shape: Sequence[int], strides: Sequence[int]
    ) -> torch.Tensor:
        if ref.offset % itemsize or any(s % itemsize for s in strides):
            raise BackendError(f"a window of {dtype} at byte {ref.offset} with strides {strides} isn't aligned")
        held = self.bytes_of(ref.buffer)
        usable = len(held) // itemsize * itemsize
        steps = [s // itemsize for s in strides]
        whole = held[:usable].view(dtype)
        return whole.as_strided(list(shape), steps, whole.storage_offset() + ref.offset // itemsize)


def to_numpy(host: torch.Tensor) -> Array:
    """The values of a host tensor as numpy holds them (bf16 as its bits); no copy."""
    return (host.view(torch.uint16) if host.dtype is torch.bfloat16 else host).numpy()


def from_numpy(data: Array) -> torch.Tensor:
    """A host tensor over the values, where they are contiguous; 16-bit integers are the bits of bf16."""
    contiguous = np.ascontiguousarray(data)
    if data.dtype == np.uint16:
        return torch.from_numpy(contiguous.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(contiguous)
