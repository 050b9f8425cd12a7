"""Which calls may run at once: a barrier is needed where one touches bytes that another one writes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from minfer_ir.dtypes import U8
from minfer_ir.graph import Graph, Node
from minfer_ir.memory.window import Window
from minfer_ir.runtime.backend import BufRef
from minfer_ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes of a buffer that a call reads or writes.

    Two accesses with one `partition` that isn't None never meet: of the bytes in both, every thread touches its own
    only, and touches the same ones in both calls.
    """

    buffer: Hashable
    window: Window
    partition: Hashable = None

    def meets(self, other: Access) -> bool:
        """False only when no byte of one thread's is a byte of another thread's."""
        if self.buffer != other.buffer or (self.partition is not None and self.partition == other.partition):
            return False
        return self.window.overlaps(other.window)


@dataclass(frozen=True, slots=True)
class Accesses:
    """All that a call reads and writes of what changes during a step."""

    reads: Sequence[Access]
    writes: Sequence[Access]

    def conflicts(self, other: Accesses) -> bool:
        """Whether running both at once could change a result: one writes what the other reads or writes."""
        return _meet(self.writes, other.writes) or _meet(self.writes, other.reads) or _meet(self.reads, other.writes)


class OpenCalls:
    """The calls since the last barrier: any two of them may be under way at once."""

    def __init__(self) -> None:
        self._open: list[Accesses] = []

    def must_wait(self, call: Accesses) -> bool:
        """Whether `call` needs a barrier before it; it is open from now on, and alone when it does."""
        waits = any(call.conflicts(other) for other in self._open)
        if waits:
            self._open.clear()
        self._open.append(call)
        return waits


def accesses_of(node: Node, graph: Graph, values: Mapping[int, BufRef]) -> Accesses:
    """What `node` reads and writes, given where values lie; weights never change and count for nothing."""
    reads = [_access(graph[source], values[source]) for source in node.sources if source in values]
    return Accesses(reads, [_access(node, values[node.id])])


def private_bytes(buffer: Hashable, bytes_per_thread: int) -> Access:
    """A write to memory of which thread i has the i-th `bytes_per_thread` bytes: two sizes cut it differently."""
    return Access(buffer, Window(TensorType((1,), U8), 0, (1,)), bytes_per_thread)


def all_bytes(buffer: Hashable) -> Access:
    """A write to memory that all threads of a call share."""
    return Access(buffer, Window(TensorType((1,), U8), 0, (1,)))


def _access(node: Node, ref: BufRef) -> Access:
    return Access(ref.buffer, Window(node.type, ref.offset, ref.strides))


def _meet(some: Sequence[Access], others: Sequence[Access]) -> bool:
    return any(a.meets(b) for a in some for b in others)
