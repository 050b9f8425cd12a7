"""Two ways to run a plan that share no code with the planner: one moves tags, the other moves numbers.

Both see memory as flat arrays of bytes, and compute addresses by broadcasting from a placement's offset and strides.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from planning_graphs import Case

from minfer_ir.dtypes import DType
from minfer_ir.evaluate import compute, decoded, weight_value
from minfer_ir.graph import Node
from minfer_ir.memory import MemoryPlan, Placement
from minfer_ir.opspec import Array

Addresses = NDArray[np.int64]
WEIGHTS = ("weight", "weight_concat")


class Violation(AssertionError):
    """The plan lets a value be overwritten too early, or puts it outside of its buffer."""


def addresses(node: Node, place: Placement) -> Addresses:
    """The address of every byte, `[*shape, itemsize]`; for a block format `[*shape[:-1], row_bytes]`."""
    kind = node.type
    if isinstance(kind.dtype, DType):
        shape, strides = (*kind.shape, kind.dtype.itemsize), (*place.strides, 1)
    else:
        shape, strides = (*kind.shape[:-1], kind.dtype.row_bytes(kind.shape[-1])), (*place.strides[:-1], 1)
    out = np.full(shape, place.offset, np.int64)
    for axis, (dim, stride) in enumerate(zip(shape, strides, strict=True)):
        out += (np.arange(dim) * stride).reshape(-1, *[1] * (len(shape) - axis - 1))
    return out


class Memory:
    """Flat buffers per backend (and per KV region) of one element per byte."""

    def __init__(self, plan: MemoryPlan, dtype: type, fill: int) -> None:
        self.plan = plan
        self.pools = {b: [np.full(p.nbytes, fill, dtype) for p in buffers] for b, buffers in plan.buffers.items()}
        self.regions = {b: [np.zeros(r.nbytes, dtype) for r in regions] for b, regions in plan.regions.items()}

    def cells(self, node: Node, backend: str) -> tuple[Array, Addresses]:
        place = self.plan.placements[node.id, backend]
        flat = (self.regions if place.kind == "kv" else self.pools)[backend][place.buffer]
        where = addresses(node, place)
        if where.size and (where.min() < place.offset or where.max() >= min(place.offset + place.length, len(flat))):
            raise Violation(f"{node} lies outside of its window {place} in {len(flat)} bytes")
        return flat, where

    def read(self, node: Node, backend: str) -> Array:
        flat, where = self.cells(node, backend)
        return flat[where]

    def write(self, node: Node, backend: str, values: Array) -> None:
        flat, where = self.cells(node, backend)
        flat[where] = values


def steps(case: Case, plan: MemoryPlan) -> Iterator[tuple[str, Node, str]]:
    """("copy", node, target) and ("run", node, backend) in execution order."""
    starts = {split.nodes[0]: split for split in case.splits}
    for node in case.graph:
        if node.id in starts:
            for copy in plan.copies[starts[node.id].index]:
                yield "copy", case.graph[copy.node], copy.target
        if node.view is None and not node.is_leaf():
            yield "run", node, node.backend or ""


def where_inputs(case: Case, plan: MemoryPlan) -> Iterator[tuple[Node, str]]:
    for node_id, backend in plan.placements:
        if case.graph[node_id].op == "input":
            yield case.graph[node_id], backend


def check_tags(case: Case, plan: MemoryPlan) -> None:
    """Every node tags every byte of its output; every read must find the tags of the value that it means."""
    graph, memory = case.graph, Memory(plan, np.int64, -1)
    tags: dict[int, Array] = {}
    for node in graph:
        own = (np.arange(node.type.nbytes, dtype=np.int64) + (node.id << 32)).reshape(byte_shape(node))
        tags[node.id] = view_bytes(node, tags[node.sources[0]]) if node.view else own
    for node, backend in where_inputs(case, plan):
        memory.write(node, backend, tags[node.id])

    def expect(source: Node, backend: str, reader: str) -> None:
        if graph[graph.owner(source.id)].op == "kv" or source.op in WEIGHTS:
            return
        if not np.array_equal(memory.read(source, backend), tags[source.id]):
            raise Violation(f"{reader} on {backend} reads {source}, whose bytes were overwritten")

    for action, node, backend in steps(case, plan):
        if action == "copy":
            expect(node, plan.homes[node.id], f"the copy for {backend}")
            memory.write(node, backend, tags[node.id])
            continue
        for source in node.sources:
            expect(graph[source], backend, str(node))
        if node.spec.writes is None:
            check_elements(case, plan, node, backend)
            memory.write(node, backend, tags[node.id])
    for output in graph.outputs:
        home = plan.homes.get(output, case.splits[0].backend if case.splits else "")
        if home:
            expect(graph[output], home, "the caller")


def check_elements(case: Case, plan: MemoryPlan, node: Node, backend: str) -> None:
    """A kernel reads element i of its operands before it writes element i, and no other.

    So a byte of the output may be a byte of an operand only in the same element, and only for ops that allow it.
    """
    out = plan.placements[node.id, backend]
    mine = addresses(node, out)
    for source in dict.fromkeys(node.sources):
        operand = case.graph[source]
        if operand.op in WEIGHTS:
            continue
        place = plan.placements[source, backend]
        if place.kind == "kv" or place.buffer != out.buffer:
            continue
        theirs = addresses(operand, place)
        shared, at, source_at = np.intersect1d(mine.ravel(), theirs.ravel(), return_indices=True)
        if not len(shared):
            continue
        if not node.spec.inplace:
            raise Violation(f"{node} writes over {operand} while it reads it")
        if mine.size != theirs.size or not np.array_equal(at, source_at):
            raise Violation(f"{node} writes over elements of {operand} that it has yet to read")


def byte_shape(node: Node) -> tuple[int, ...]:
    kind = node.type
    if isinstance(kind.dtype, DType):
        return (*kind.shape, kind.dtype.itemsize)
    return (*kind.shape[:-1], kind.dtype.row_bytes(kind.shape[-1]))


def view_bytes(node: Node, source: Array) -> Array:
    """The view's elements picked out of the source's by numpy, byte by byte."""
    return np.stack([node.spec.reference(node.attrs, source[..., i]) for i in range(source.shape[-1])], axis=-1)


def execute(case: Case, plan: MemoryPlan, fill: int = 0xFF) -> list[Array]:
    """Run the graph over planned memory (NaN where nothing was written); the outputs as numbers."""
    graph, memory = case.graph, Memory(plan, np.uint8, fill)
    for node, backend in where_inputs(case, plan):
        store(memory, node, backend, np.asarray(case.inputs[node.attrs.key]))
    for action, node, backend in steps(case, plan):
        if action == "copy":
            store(memory, node, backend, load(memory, node, plan.homes[node.id]))
            continue
        values = {}
        for source in node.sources:
            operand = graph[source]
            is_weight = operand.op in WEIGHTS
            values[source] = weight_value(operand, case.weights) if is_weight else load(memory, operand, backend)
        store(memory, node, backend, compute(node, graph, values))
    home = case.splits[0].backend
    return [decoded(graph[o].type, load(memory, graph[o], plan.homes.get(o, home))) for o in graph.outputs]


def load(memory: Memory, node: Node, backend: str) -> Array:
    data = memory.read(node, backend).astype(np.uint8)
    if not isinstance(node.type.dtype, DType):
        return data
    return np.ascontiguousarray(data).view(node.type.dtype.storage)[..., 0]


def store(memory: Memory, node: Node, backend: str, value: Array) -> None:
    value = np.ascontiguousarray(value)
    memory.write(node, backend, value.view(np.uint8).reshape(byte_shape(node)))
