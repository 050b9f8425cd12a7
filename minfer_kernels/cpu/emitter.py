"""What the functions of `emit` write through: operands resolved to addresses, strides and row counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from minfer_ir.graph import Graph, Node
from minfer_ir.memory.hazards import Accesses, OpenCalls, accesses_of, all_bytes, private_bytes
from minfer_ir.ops.rope import RopeAttrs
from minfer_ir.runtime.backend import Binding
from minfer_ir.runtime.host import HostBuffers
from minfer_kernels.cpu.runner.tape import NOTHING, Place, Stretch, Tape, TapeBuilder
from minfer_kernels.cpu.weights.held import CpuWeight

RopeTables = Callable[[RopeAttrs, int | None], NDArray[np.float32]]


class Emitter:
    """Resolves operands to addresses, strides and row counts while a tape is written."""

    def __init__(
        self,
        graph: Graph,
        binding: Binding,
        buffers: HostBuffers,
        weights: Mapping[int, CpuWeight],
        tape: TapeBuilder,
        tables: RopeTables,
        scratch: Callable[[int], int],
        shared: Callable[[int], int],
    ) -> None:
        self.graph, self.weights, self.tables, self.binding = graph, weights, tables, binding
        self._scratch, self._shared = scratch, shared
        self._scratch_taken, self._shared_taken = 0, False
        self._open = OpenCalls()
        self._buffers, self._tape = buffers, tape
        self._counts: dict[int, NDArray[np.int32]] = {}
        self.length = 0

    def call(self, kernel: str, node: Node, weights: Stretch = NOTHING, /, **operands: int | float) -> None:
        """Append one kernel call for `node`; a barrier before it where a call since the last one touches its bytes."""
        if self._open.must_wait(self._accesses(node)):
            self._tape.meet()
        self._tape.emit(kernel, barrier=False, label=node.name, weights=weights, **operands)
        self.length += 1

    def _accesses(self, node: Node) -> Accesses:
        found = accesses_of(node, self.graph, self.binding.values)
        writes = [*found.writes]
        if self._scratch_taken:
            writes.append(private_bytes("scratch", self._scratch_taken))
        if self._shared_taken:
            writes.append(all_bytes("shared"))
        self._scratch_taken, self._shared_taken = 0, False
        return Accesses(found.reads, writes)

    def finish(self) -> Tape:
        """The tape."""
        return self._tape.build()

    def sources(self, node: Node) -> list[Node]:
        """The operand nodes in declaration order."""
        return [self.graph[s] for s in node.sources]

    def at(self, node: Node, skip: int = 0) -> Place:
        """The address of a value's element `skip` of float32; a weight's float32 values."""
        behind = f"[{skip}:]" if skip else ""
        if node.id in self.weights:
            address = _address(self.weights[node.id].values, node)
            return Place(address + 4 * skip, f"{self.weight_text(node)}{behind}")
        ref = self.binding.values[node.id]
        address, offset = self._buffers.address(ref) + 4 * skip, ref.offset + 4 * skip
        return Place(address, f"{node.name}{behind}@b{ref.buffer}+{offset:#x}")

    def weight_text(self, node: Node) -> str:
        """A weight in listings: its name and id on the backend."""
        return f"{node.name}@w{self.binding.weights[node.id]}"

    def row_stride(self, node: Node) -> int:
        """Bytes between rows; 0 for a vector, which is the same row again."""
        if node.id in self.weights or len(node.type.shape) == 1:
            return 0
        return self.binding.values[node.id].strides[0]

    def stride(self, node: Node, axis: int) -> int:
        """Bytes between elements along `axis`."""
        return self.binding.values[node.id].strides[axis]

    def rows_at(self, node: Node) -> Place:
        """The address of the int32 that holds how many rows `node` has in this step."""
        if node.type.rows is not None:
            pair = self._buffers.address(self.binding.n_rows)
            return Place(pair + (0 if node.type.rows == "token" else 4), f"n_{node.type.rows}_rows")
        return self.count(node.type.shape[0] if len(node.type.shape) > 1 else 1)

    def scratch(self, bytes_per_thread: int) -> Place:
        """The address of memory that one kernel call may use freely; no value outlives the call."""
        self._scratch_taken = bytes_per_thread
        return Place(self._scratch(bytes_per_thread), "scratch")

    def shared(self, nbytes: int) -> Place:
        """The address of memory that the threads of a kernel call share: zero at first, later as calls left it."""
        self._shared_taken = True
        return Place(self._shared(nbytes), "shared")

    def count(self, n: int) -> Place:
        """The address of an int32 constant."""
        if n not in self._counts:
            self._counts[n] = np.array([n], np.int32)
        return Place(self._counts[n].ctypes.data, f"const {n}")


def _address(array: NDArray[np.float32] | None, node: Node) -> int:
    assert array is not None, f"{node.name} was registered without float values"
    return array.ctypes.data


def row_width(node: Node) -> int:
    """Elements of one row: everything behind axis 0; a vector is one row."""
    shape = node.type.shape
    return math.prod(shape[1:] if len(shape) > 1 or node.type.rows else shape)
