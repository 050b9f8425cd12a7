"""A stage of lowering as text, JSON and DOT: the graph, with what the later stages know about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from minfer_ir.dot import export_dot
from minfer_ir.graph import Graph
from minfer_ir.memory.budget import mib
from minfer_ir.memory.liveness import Liveness, Place
from minfer_ir.memory.plan import Interval, MemoryPlan, Placement
from minfer_ir.passes.base import Lowering
from minfer_ir.printer import print_graph
from minfer_ir.runtime.executable import Executable
from minfer_ir.serialize import dumps


class StageView:
    """What lowering had come to after stage `stage`; `block` keeps one layer of it, in text and DOT."""

    def __init__(self, state: Lowering, stage: str, block: int | None = None) -> None:
        self.state, self.stage, self.block = state, stage, block
        self.graph = state.graph

    def text(self) -> str:
        """The graph with a column of annotations, then totals; the programs and what they stand on once lowered."""
        head = f"# stage {self.stage}: {_params_text(self.state)}\n"
        if self.state.executable is not None:
            return head + "\n".join(self._programs(self.state.executable)) + "\n"
        body = print_graph(self.graph, self._notes(), self.block)
        totals = list(self._totals())
        return head + body + ("\n" + "\n".join(totals) + "\n" if totals else "")

    def json(self) -> str:
        """The graph's JSON with a `plan` object."""
        return dumps(self.graph, self.stage, self._plan())

    def dot(self, model: str) -> str:
        """The graph for Graphviz; split and place in the labels once they're known, model and stage above it."""
        notes = self._splits() if self.state.memory is None else _place_names(self.graph, self.state.memory)
        return export_dot(self.graph, self.block, notes, f"{model}, stage {self.stage}: {_params_text(self.state)}")

    def _notes(self) -> dict[int, str]:
        state = self.state
        if state.memory is not None:
            return _placement_notes(self.graph, state.memory)
        if state.liveness is not None:
            return _liveness_notes(self.graph, state.liveness)
        return self._splits()

    def _splits(self) -> dict[int, str]:
        return {n: f"split {s.index}" for s in self.state.splits for n in s.nodes}

    def _totals(self) -> Iterator[str]:
        for split in self.state.splits:
            reads = f", reads {', '.join(str(self.graph[r]) for r in split.reads)}" if split.reads else ""
            yield f"split {split.index} on {split.backend}: {len(split.nodes)} nodes{reads}"
        if self.state.memory is not None:
            for backend in self.state.memory.buffers:
                yield from _memory_totals(self.state.memory, backend, self.state.params.rows)

    def _programs(self, executable: Executable) -> Iterator[str]:
        kept = None if self.block is None else {n.id for n in self.graph if n.block == self.block}
        for split, program in zip(executable.splits, executable.programs, strict=True):
            yield f"split {split.index} on {split.backend}: {len(split.nodes)} nodes"
            for crossing in executable.staging[split.index]:
                yield f"  copy {self.graph[crossing.node]} from {crossing.source} to {crossing.target}"
            yield from _with_plan_names(program.listing(kept), executable, split.backend)
        for backend in executable.plan.buffers:
            yield ""
            yield from _pool_totals(executable, backend)

    def _plan(self) -> dict[str, Any] | None:
        state = self.state
        if not state.splits:
            return None
        plan: dict[str, Any] = {
            "params": _params_json(state),
            "splits": [
                {"index": s.index, "backend": s.backend, "nodes": list(s.nodes), "reads": list(s.reads)}
                for s in state.splits
            ],
        }
        if state.liveness is not None:
            plan["liveness"] = _liveness_json(state.liveness)
        if state.memory is not None:
            plan["memory"] = memory_json(self.graph, state.memory)
        if state.executable is not None:
            programs = zip(state.executable.splits, state.executable.programs, strict=True)
            plan["programs"] = [
                {
                    "split": s.index,
                    "backend": s.backend,
                    "listing": _with_plan_names(p.listing(), state.executable, s.backend),
                }
                for s, p in programs
            ]
            plan["pool_buffers"] = {b: _pool_buffers(state.executable, b) for b in state.executable.plan.buffers}
        return plan


def _params_json(state: Lowering) -> dict[str, Any]:
    p = state.params
    return {
        "rows": p.rows,
        "output_rows": p.output_rows,
        "n_ctx": p.n_ctx,
        "n_cells": p.n_cells,
        "window": p.window,
        "kv": p.kv_type,
        "devices": list(p.devices.order),
        "fusions_off": sorted(p.fusions_off),
    }


def _params_text(state: Lowering) -> str:
    shown = {k: ",".join(v) or "none" if isinstance(v, list) else v for k, v in _params_json(state).items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _placement_notes(graph: Graph, plan: MemoryPlan) -> dict[int, str]:
    several = len(plan.buffers) > 1
    notes: dict[int, list[str]] = {}
    for place, placement in plan.placements.items():
        where = f"{place[1]}: " if several else ""
        notes.setdefault(place[0], []).append(where + _placement_text(graph, plan, place, placement))
    return {node: "; ".join(texts) for node, texts in notes.items()}


def _place_names(graph: Graph, plan: MemoryPlan) -> dict[int, str]:
    """Where every value lies, in a few characters."""
    several = len(plan.buffers) > 1
    names: dict[int, list[str]] = {}
    for place, placement in plan.placements.items():
        where = f"{place[1]} " if several else ""
        names.setdefault(place[0], []).append(f"{where}{_buffer_name(plan, place[1], placement)}+{placement.offset:#x}")
    return {node: ", ".join(texts) for node, texts in names.items()}


def _buffer_name(plan: MemoryPlan, backend: str, placement: Placement) -> str:
    return plan.regions[backend][placement.buffer].key if placement.kind == "kv" else f"b{placement.buffer}"


def _placement_text(graph: Graph, plan: MemoryPlan, place: Place, placement: Placement) -> str:
    at, size = _buffer_name(plan, place[1], placement), "exact"
    if placement.kind != "kv":
        size = f"class {plan.buffers[place[1]][placement.buffer].nbytes}"
    alias = _alias(graph, plan, place, placement)
    kind = placement.kind if alias is None else f"{placement.kind} of {graph[alias]}"
    life = _life_text(plan.intervals[place], graph)
    return f"{at}+{placement.offset:#x} {placement.length} bytes, {size}, {life}, {kind}"


def _alias(graph: Graph, plan: MemoryPlan, place: Place, placement: Placement) -> int | None:
    """The value whose bytes this one uses."""
    if placement.kind == "inplace":
        return plan.inplace[place[0]]
    owner = graph.owner(place[0])
    return None if owner == place[0] or placement.kind == "staged" else owner


def _life_text(interval: Interval, graph: Graph) -> str:
    first = "start" if interval.start < 0 else f"%{interval.start}"
    return f"life {first} to {_time(interval.end, graph)}"


def _liveness_notes(graph: Graph, live: Liveness) -> dict[int, str]:
    notes: dict[int, list[str]] = {}
    for place, alias in live.aliases.items():
        reads = live.reads.get(place, ())
        where = f"in {graph[alias.owner[0]]}+{alias.offset:#x}"
        if alias.owner == place:
            where = f"its bytes live {_own_life(live, place, graph)}"
        read = f"read at {', '.join(_time(t, graph) for t in reads)}" if reads else "not read itself"
        notes.setdefault(place[0], []).append(f"{place[1]}: {read}, {where}")
    return {node: "; ".join(texts) for node, texts in notes.items()}


def _own_life(live: Liveness, place: Place, graph: Graph) -> str:
    if graph[place[0]].is_leaf():
        return "from start to end"  # inputs are filled before the step, cells outlive it
    return f"to {_time(max(place[0], live.last_use(place)), graph)}"


def _time(time: int, graph: Graph) -> str:
    return "end" if time >= len(graph) else f"%{time}"


def _memory_totals(plan: MemoryPlan, backend: str, rows: int) -> Iterator[str]:
    yield f"buffers on {backend}"
    for buffer in plan.buffers[backend]:
        yield f"  b{buffer.index:<4} {buffer.nbytes:>12} bytes, largest request {buffer.largest}"
    kinds = [p.kind for place, p in plan.placements.items() if place[1] == backend]
    regions = plan.regions.get(backend, ())
    yield f"totals on {backend}, a forward of {rows} row{'s' * (rows > 1)}"
    yield f"  pool      {mib(plan.pool_bytes(backend)):>14} in {len(plan.buffers[backend])} buffers"
    yield f"  live      {mib(plan.live.get(backend, 0)):>14} at the fullest node"
    if backend in plan.scratch:
        scratch = plan.scratch[backend]
        yield f"  scratch   {mib(scratch.length):>14} in {_buffer_name(plan, backend, scratch)}, the whole step"
    yield f"  kv cells  {mib(plan.region_bytes(backend)):>14} in {len(regions)} regions"
    yield f"  values    {', '.join(f'{kinds.count(k)} {k}' for k in sorted(set(kinds)))}"


def _pool_buffers(executable: Executable, backend: str) -> dict[str, int]:
    """The plan's buffers and regions by the name that the allocate stage gives them, with the pool's buffer id.

    A pool serves the plans of all forwards, so a plan's first buffer need not be the pool's first.
    """
    plan = executable.plan
    found: dict[str, int] = {}
    for (node, where), placement in plan.placements.items():
        if where == backend:
            found[_buffer_name(plan, backend, placement)] = executable.ref(node, backend).buffer
    scratch = executable.scratch(backend)
    if scratch is not None:
        found[_buffer_name(plan, backend, plan.scratch[backend])] = scratch.buffer
    return found


def _with_plan_names(listing: Iterable[str], executable: Executable, backend: str) -> list[str]:
    """A program's lines with the buffers called as in the allocate stage, not by the pool's ids."""
    names = {str(buffer): name for name, buffer in _pool_buffers(executable, backend).items()}
    return [re.sub(r"@b(\d+)(?=\+0x)", lambda found: f"@{names[found[1]]}", line) for line in listing]


def _pool_totals(executable: Executable, backend: str) -> Iterator[str]:
    yield f"buffers on {backend}, as the allocate stage names them, and the pool's buffer behind each"
    plan, held = executable.plan, _pool_buffers(executable, backend)
    for planned in plan.buffers[backend]:
        if f"b{planned.index}" in held:
            yield f"  b{planned.index:<4} {planned.nbytes:>12} bytes, pool buffer {held[f'b{planned.index}']}"
    regions = plan.regions.get(backend, ())
    kv = ", ".join(f"{r.key} in {held[r.key]}" for r in regions if r.key in held)
    yield f"  KV regions and their buffers: {kv or 'none'}"
    yield executable.resources.report(backend, plan).text()


def _liveness_json(live: Liveness) -> list[dict[str, Any]]:
    return [
        {
            "node": place[0],
            "backend": place[1],
            "owner": alias.owner[0],
            "offset": alias.offset,
            "reads": list(live.reads.get(place, ())),
        }
        for place, alias in live.aliases.items()
    ]


def memory_json(graph: Graph, plan: MemoryPlan) -> dict[str, Any]:
    """The plan as plain values: every value's place and life, the buffers, the totals. Sizes in bytes."""
    return {
        "values": [_placement_json(graph, plan, place, placement) for place, placement in plan.placements.items()],
        "buffers": {
            b: [{"index": x.index, "class_bytes": x.nbytes, "largest": x.largest} for x in buffers]
            for b, buffers in plan.buffers.items()
        },
        "regions": {
            b: [
                {"key": r.key, "cells": r.cells, "width": r.width, "dtype": r.dtype.name, "bytes": r.nbytes} for r in rs
            ]
            for b, rs in plan.regions.items()
        },
        "copies": [
            {"split": split, "node": c.node, "source": c.source, "target": c.target}
            for split, copies in plan.copies.items()
            for c in copies
        ],
        "totals": {
            b: {
                "pool": plan.pool_bytes(b),
                "live": plan.live.get(b, 0),
                "scratch": plan.scratch_bytes(b),
                "kv": plan.region_bytes(b),
            }
            for b in plan.buffers
        },
    }


def _placement_json(graph: Graph, plan: MemoryPlan, place: Place, placement: Placement) -> dict[str, Any]:
    interval = plan.intervals[place]
    is_region = placement.kind == "kv"
    return {
        "node": place[0],
        "backend": place[1],
        "kind": placement.kind,
        "buffer": None if is_region else placement.buffer,
        "region": plan.regions[place[1]][placement.buffer].key if is_region else None,
        "class_bytes": None if is_region else plan.buffers[place[1]][placement.buffer].nbytes,
        "offset": placement.offset,
        "bytes": placement.length,
        "strides": list(placement.strides),
        "first": interval.start,
        "last": interval.end,
        "alias": _alias(graph, plan, place, placement),
    }
