"""The part of the Backend protocol that every backend over torch tensors has."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minfer_ir.opspec import Array
from minfer_ir.runtime.backend import BufRef
from minfer_ir.types import TensorType
from minfer_kernels.tensors.buffers import TensorBuffers


class TensorBackend:
    """Owns the buffers of one torch device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.buffers = TensorBuffers(device)

    def allocate(self, nbytes: int) -> int:
        """A zeroed device buffer."""
        return self.buffers.allocate(nbytes)

    def free(self, buffer: int) -> None:
        """Drop a device buffer."""
        self.buffers.free(buffer)

    def write(self, ref: BufRef, data: Array) -> None:
        """Copy host rows into a window."""
        self.buffers.write(ref, data)

    def read(self, ref: BufRef, kind: TensorType, n_rows: int | None = None, copy: bool = True) -> Array:
        """Copy rows out of a window."""
        return self.buffers.read(ref, kind, n_rows)

    def copy_cells(self, ref: BufRef, row_bytes: int, moves: Sequence[tuple[int, int, int]]) -> None:
        """Move runs of KV rows, (from, to, count) each, as if every row were read before any is written."""
        region = self.buffers.cells(ref, row_bytes, moves)
        lifted = [region[source : source + count].clone() for source, _, count in moves]
        for (_, target, count), held in zip(moves, lifted, strict=True):
            region[target : target + count] = held
