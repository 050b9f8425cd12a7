"""A lowered graph, ready to run step after step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from minfer_ir.evaluate import N_ROWS, decoded
from minfer_ir.graph import Graph, Node
from minfer_ir.memory.liveness import Copy
from minfer_ir.memory.plan import MemoryPlan, Placement
from minfer_ir.opspec import Array
from minfer_ir.runtime.backend import AsyncCopies, BackendError, Binding, BufRef, Pending, Program, Split
from minfer_ir.runtime.fill import check_fill, input_nodes
from minfer_ir.runtime.one_row import OneRow
from minfer_ir.runtime.resources import Resources


@dataclass(frozen=True, slots=True)
class Staging:
    """A value that crosses: read where it was computed, written where the split reads it."""

    node: int
    source: str
    read: BufRef
    target: str
    write: BufRef


class Executable:
    """Runs one graph over its planned buffers. Borrowed from a `GraphCache`; the buffers belong to the pools.

    `program_seconds` adds up the time spent inside the backends' programs. `one_row` is the short way of a decode step,
    where this graph is one.
    """

    def __init__(self, graph: Graph, splits: tuple[Split, ...], plan: MemoryPlan, resources: Resources) -> None:
        self.graph, self.splits, self.plan, self.resources = graph, splits, plan, resources
        self.program_seconds = 0.0
        self.retired = False
        self._buffers = resources.reserve(graph, plan)
        self._regions = {name: resources.region_buffers(plan, name) for name in plan.buffers}
        self._weights = {name: resources.weights_of(graph, name) for name in plan.buffers}
        self._wanted = input_nodes(graph)
        self.input_windows = self._input_windows()
        self.output_windows = [(graph[o], self._home(o), self.ref(o, self._home(o))) for o in graph.outputs]
        self.staging = [[self._stage(copy) for copy in plan.copies[split.index]] for split in splits]
        self._departures = [self._leaving(split) for split in splits]
        self.programs = [self._compile(split) for split in splits]
        self.one_row = OneRow.of(self)

    def retire(self) -> None:
        """Refuse to run from now on: the pools may have given the buffers to others."""
        self.retired = True

    def buffers(self, backend: str) -> set[int]:
        """Pool buffers that this graph uses: what a trim must keep."""
        return set(self._buffers.get(backend, {}).values())

    def ref(self, node: int, backend: str) -> BufRef:
        """Where `node` lies on `backend`."""
        place: Placement = self.plan.placements[node, backend]
        buffer = self._regions[backend][place.buffer] if self._in_region(node) else self._buffers[backend][place.buffer]
        return BufRef(buffer, place.offset, place.length, place.strides)

    def scratch(self, backend: str) -> BufRef | None:
        """What the programs on `backend` write beside values; None where they want nothing."""
        place = self.plan.scratch.get(backend)
        if place is None:
            return None
        return BufRef(self._buffers[backend][place.buffer], place.offset, place.length, place.strides)

    def run(self, inputs: Mapping[str, Array]) -> None:
        """One forward; raises FillError before anything is written when the inputs don't fit."""
        self._fill(inputs)
        started: dict[Staging, Pending] = {}
        for program, staging, leaving in zip(self.programs, self.staging, self._departures, strict=True):
            self._cross(staging, inputs, started)
            self.resources.probe.hit("split.run")
            start = perf_counter()
            program.run()
            self.program_seconds += perf_counter() - start
            for crossing, source in leaving:
                node = self.graph[crossing.node]
                started[crossing] = source.start_read(crossing.read, node.type, _rows(node, inputs))

    def steps(self, inputs: Mapping[str, Array]) -> Iterator[tuple[Node, Callable[[], None]]]:
        """One forward, node by node: each node of the splits before it runs, with what runs it.

        Whoever iterates calls it, once, before going on.
        """
        self._fill(inputs)
        for split, program, staging in zip(self.splits, self.programs, self.staging, strict=True):
            self._cross(staging, inputs, {})
            for node_id in split.nodes:
                yield self.graph[node_id], partial(program.run_node, node_id)

    def trace(self, inputs: Mapping[str, Array]) -> Iterator[tuple[Node, Array]]:
        """One forward, node by node: each computed node with its value as numbers, right after it ran."""
        for node, run in self.steps(inputs):
            run()
            if node.spec.writes is None:
                yield node, self.value(node.id, inputs)

    def stored(self, node_id: int, backend: str, inputs: Mapping[str, Array]) -> Array:
        """A copy of a node's value in storage form over its logical rows, as `backend` sees it."""
        node = self.graph[node_id]
        return self.resources.backends[backend].read(self.ref(node_id, backend), node.type, _rows(node, inputs))

    def value(self, node_id: int, inputs: Mapping[str, Array]) -> Array:
        """A node's value as numbers over its logical rows; only meaningful while its buffer holds it."""
        return decoded(self.graph[node_id].type, self.stored(node_id, self._home(node_id), inputs))

    def outputs(self, inputs: Mapping[str, Array], copy: bool = True) -> list[Array]:
        """The outputs of the last run; with `copy=False` only valid until the next one."""
        backends = self.resources.backends
        read = [(n, backends[name].read(ref, n.type, _rows(n, inputs), copy)) for n, name, ref in self.output_windows]
        return [decoded(node.type, value) for node, value in read]

    def _home(self, node_id: int) -> str:
        """The backend to read a value from; an input is on every backend that reads it."""
        if node_id in self.plan.homes:
            return self.plan.homes[node_id]
        return next(name for name in self.plan.buffers if (node_id, name) in self.plan.placements)

    def _fill(self, inputs: Mapping[str, Array]) -> None:
        if self.retired:
            raise BackendError("this graph left the cache and its buffers may be others' now; ask for it again")
        filled = check_fill(self._wanted, inputs)
        together: dict[str, list[tuple[BufRef, Array]]] = {}
        for node, name, ref in self.input_windows:
            backend, data = self.resources.backends[name], filled[node.attrs.key]
            if isinstance(backend, AsyncCopies):
                together.setdefault(name, []).append((ref, data))
            else:
                backend.write(ref, data)
        for name, writes in together.items():
            backend = self.resources.backends[name]
            assert isinstance(backend, AsyncCopies)
            backend.write_all(writes)

    def _input_windows(self) -> list[tuple[Node, str, BufRef]]:
        return [
            (node, name, self.ref(node.id, name))
            for node in self._wanted.values()
            for name in self.plan.buffers
            if (node.id, name) in self.plan.placements
        ]

    def _in_region(self, node: int) -> bool:
        return self.graph[self.graph.owner(node)].op == "kv"

    def _cross(self, staging: list[Staging], inputs: Mapping[str, Array], started: dict[Staging, Pending]) -> None:
        """Bring in what the next split reads; a copy that was started is waited for here."""
        for crossing in staging:
            self.resources.probe.hit("staging.copy")
            node = self.graph[crossing.node]
            source, target = self.resources.backends[crossing.source], self.resources.backends[crossing.target]
            if crossing in started:
                value = started.pop(crossing).result()
            else:
                value = source.read(crossing.read, node.type, _rows(node, inputs))
            target.write(crossing.write, value)

    def _leaving(self, split: Split) -> list[tuple[Staging, AsyncCopies]]:
        """What later splits read of this one, where its copy can begin as soon as this one is queued."""
        nodes, source = set(split.nodes), self.resources.backends[split.backend]
        if not isinstance(source, AsyncCopies):
            return []
        return [(c, source) for staging in self.staging for c in staging if c.node in nodes]

    def _stage(self, copy: Copy) -> Staging:
        read, write = self.ref(copy.node, copy.source), self.ref(copy.node, copy.target)
        return Staging(copy.node, copy.source, read, copy.target, write)

    def _compile(self, split: Split) -> Program:
        self.resources.probe.hit("split.compile")
        values = {node: self.ref(node, name) for node, name in self.plan.placements if name == split.backend}
        n_rows = self.graph.by_name[N_ROWS].id
        counts, scratch = self.ref(n_rows, split.backend), self.scratch(split.backend)
        binding = Binding(values, self._weights[split.backend], counts, scratch)
        return self.resources.backends[split.backend].compile(self.graph, split, binding)


def _rows(node: Node, inputs: Mapping[str, Array]) -> int | None:
    if node.type.rows is None:
        return None
    counts: NDArray[np.int32] = np.asarray(inputs[N_ROWS])
    return int(counts[0 if node.type.rows == "token" else 1])
