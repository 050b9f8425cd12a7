"""From the times of instructions and the costs of nodes to where the time went, in parts that add up to the whole."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from minfer_ir.costs import step_costs
from minfer_ir.graph import Graph, Node
from minfer_ir.opspec import Cost
from minfer_kernels.cpu.runner.timing import Clock, TapeTimes
from minfer_kernels.cpu.weights.packing import PackedWeight
from minfer_models.bench.roofline.steps import Forward, program_of

Seconds = NDArray[np.float64]
BLOCK = re.compile(r"^blk\.\d+\.")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the machine can do at best: bytes per second from memory and from the caches, multiply-adds per second."""

    memory: float
    cache: float
    int8: float
    f32: float


LIMITS = ("memory", "cache", "int8", "f32")


@dataclass(slots=True)
class Part:
    """The nodes of one kind. Seconds of the mean thread: `seconds` inside their kernels, `waiting` behind them.

    `limit` is the least time that the machine needs for the work, node by node the longer of moving the bytes and of
    multiplying; `limited` splits it by what it is that takes so long.
    """

    kind: str
    op: str
    calls: int = 0
    seconds: float = 0.0
    waiting: float = 0.0
    cost: Cost = field(default_factory=lambda: Cost(0, 0))
    limit: float = 0.0
    limited: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LIMITS, 0.0))


@dataclass(frozen=True, slots=True)
class Attribution:
    """Where the seconds of several forwards went: `total` is the sum of the parts, `waking` and `outside`.

    `waking` is what lies between the program's call and its first instruction on the mean thread, and behind its last;
    `outside` is everything that isn't the program.
    """

    parts: tuple[Part, ...]
    waking: float
    outside: float
    total: float


@dataclass(frozen=True, slots=True)
class Spans:
    """One walk of a tape in seconds of `perf_counter`: `enter` and `leave` `[n_threads, n_instructions]`.

    `onward` is when the thread went on: entered the next instruction, or was past the last barrier.
    """

    enter: Seconds
    leave: Seconds
    onward: Seconds

    @classmethod
    def of(cls, forward: Forward[TapeTimes], clock: Clock) -> Spans:
        """Those of a forward."""
        spans, done = clock.seconds(forward.times.spans), clock.seconds(forward.times.done)
        return cls(spans[:, :, 0], spans[:, :, 1], np.concatenate([spans[:, 1:, 0], done[:, None]], axis=1))


def attribute(forwards: Sequence[Forward[TapeTimes]], clock: Clock, limits: Limits) -> Attribution:
    """Where the time of `forwards` went, by kind of node."""
    parts: dict[str, Part] = {}
    waking = outside = 0.0
    for forward in forwards:
        spans, times = Spans.of(forward, clock), forward.times
        waking += float(np.mean(spans.enter[:, 0] - times.began) + np.mean(times.ended - spans.onward[:, -1]))
        outside += forward.seconds - (times.ended - times.began)
        _add(parts, forward, spans, limits)
    total = sum(forward.seconds for forward in forwards)
    return Attribution(tuple(parts.values()), waking, outside, total)


def kind_of(node: Node, graph: Graph, packed: Mapping[int, PackedWeight]) -> str:
    """The op; for one that reads packed weights also which, whatever the block, and their format."""
    weight = next((packed[s] for s in node.sources if s in packed), None)
    if weight is None or node.op == "get_rows":
        return node.op
    return f"{node.op} {BLOCK.sub('', node.name)} {weight.layout.format}"


def limit_of(cost: Cost, int8: bool, limits: Limits) -> tuple[float, str]:
    """The least seconds for the work, and what takes them."""
    memory, cache = cost.resident / limits.memory, (cost.bytes - cost.resident) / limits.cache
    multiplying = cost.flops / 2 / (limits.int8 if int8 else limits.f32)
    if multiplying > memory + cache:
        return multiplying, "int8" if int8 else "f32"
    return memory + cache, "memory" if memory >= cache else "cache"


def _add(parts: dict[str, Part], forward: Forward[TapeTimes], spans: Spans, limits: Limits) -> None:
    graph, program = forward.executable.graph, program_of(forward.executable)
    packed = program.packed_weights()
    costs = step_costs(graph, forward.inputs, {leaf: weight.buffer.nbytes for leaf, weight in packed.items()})
    busy, waiting = (spans.leave - spans.enter).mean(axis=0), (spans.onward - spans.leave).mean(axis=0)
    for node_id, (first, stop) in program.spans.items():
        node, cost = graph[node_id], costs[node_id]
        kind = kind_of(node, graph, packed)
        part = parts.setdefault(kind, Part(kind, node.op))
        int8 = any(packed[s].layout.activation != "f32" for s in node.sources if s in packed)
        seconds, by = limit_of(cost, int8 and node.op != "get_rows", limits)
        part.calls += 1
        part.seconds += float(busy[first:stop].sum())
        part.waiting += float(waiting[first:stop].sum())
        part.cost += cost
        part.limit += seconds
        part.limited[by] += seconds
