"""The memory plan: which buffer holds which value, and where. Pure: no backend is asked for anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from minfer_ir.dtypes import DType
from minfer_ir.graph import Graph, Node
from minfer_ir.memory.classes import class_bytes
from minfer_ir.memory.inplace import Resident, may_take_over
from minfer_ir.memory.liveness import Copy, Liveness, Place, analyze, is_computed
from minfer_ir.memory.window import PlanError, Window
from minfer_ir.runtime.backend import Split
from minfer_ir.types import Strides

Kind = Literal["input", "value", "view", "inplace", "staged", "kv", "scratch"]


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """One pool buffer: `nbytes` is the class of the `largest` request it serves."""

    index: int
    nbytes: int
    largest: int


@dataclass(frozen=True, slots=True)
class Region:
    """A persistent KV region: exact, never from the pool."""

    key: str
    cells: int
    width: int
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes of all its cells."""
        return self.cells * self.dtype.row_bytes(self.width)

    def __str__(self) -> str:
        return f"{self.key} {self.dtype.name}[{self.cells}, {self.width}]"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a value lies on a backend: `length` bytes from `offset`, first to last, walked with byte `strides`.

    `buffer` indexes the plan's buffers of the backend; for kind "kv" it indexes the plan's regions instead.
    """

    buffer: int
    offset: int
    length: int
    strides: Strides
    kind: Kind


@dataclass(frozen=True, slots=True)
class Interval:
    """First and last node index, inclusive, between which the bytes must stay.

    Inputs start at -1; what lives to the end of the step ends at `len(graph)`.
    """

    start: int
    end: int


@dataclass(frozen=True)
class MemoryPlan:
    """The buffers of every backend, and the place of every value in them.

    Placements and intervals are keyed by (node id, backend). The interval of an owner covers everything that lies
    in its storage (views and in-place results too); the interval of any other value is its own. `inplace` maps a
    node to the operand whose bytes it takes over. `copies` lists, by split index, what is staged before the split
    runs. `homes` says which backend to read a node's value from. `live` is the largest number of bytes in use at
    once, per backend. `scratch` is what the programs of a backend write beside values, theirs for the whole step; a
    backend without has no entry. Equal graphs and splits give equal plans.
    """

    buffers: Mapping[str, tuple[PlannedBuffer, ...]]
    regions: Mapping[str, tuple[Region, ...]]
    placements: Mapping[Place, Placement]
    intervals: Mapping[Place, Interval]
    inplace: Mapping[int, int]
    copies: Mapping[int, tuple[Copy, ...]]
    homes: Mapping[int, str]
    live: Mapping[str, int]
    scratch: Mapping[str, Placement]

    def sizes(self, backend: str) -> tuple[int, ...]:
        """Bytes of each buffer on `backend`, by index: what `Pool.reserve` takes."""
        return tuple(b.nbytes for b in self.buffers.get(backend, ()))

    def pool_bytes(self, backend: str) -> int:
        """Bytes of all buffers on `backend`."""
        return sum(self.sizes(backend))

    def scratch_bytes(self, backend: str) -> int:
        """Bytes of the scratch on `backend`, a part of its pool."""
        return self.scratch[backend].length if backend in self.scratch else 0

    def region_bytes(self, backend: str) -> int:
        """Bytes of all KV regions on `backend`."""
        return sum(r.nbytes for r in self.regions.get(backend, ()))


def plan_memory(
    graph: Graph,
    splits: Sequence[Split],
    *,
    inplace: bool = True,
    contiguous_only: AbstractSet[str] = frozenset(),
    scratch: Mapping[str, int] = MappingProxyType({}),
) -> MemoryPlan:
    """Give every value a place, and every backend the bytes of `scratch` that it asks for.

    `inplace=False` gives every computed node bytes of its own. On the backends in `contiguous_only` (those whose
    `Capabilities.layouts` is "contiguous") no output takes over a window with gaps. Raises PlanError for splits that
    don't fit the graph, a KV region with two sizes or on two backends, and a store into something else than a region.
    """
    return _Planner(graph, analyze(graph, splits), inplace, contiguous_only).plan(splits, scratch)


@dataclass(slots=True)
class _Storage:
    """An owner's bytes while the walk is on: its buffer, until when, and who lies in it."""

    kind: Kind
    buffer: int
    nbytes: int
    start: int
    end: int
    residents: list[Resident] = field(default_factory=list[Resident])


@dataclass(slots=True)
class _Buffers:
    """The buffers planned on one backend, the idle ones, and the bytes in use."""

    largest: list[int] = field(default_factory=list[int])
    idle: list[int] = field(default_factory=list[int])
    used: int = 0
    peak: int = 0

    def take(self, nbytes: int) -> int:
        """An idle buffer that fits, tightest first; else the largest idle one, grown; else a new one."""
        self.used += nbytes
        self.peak = max(self.peak, self.used)
        wanted = class_bytes(nbytes)
        fitting = [i for i in self.idle if class_bytes(self.largest[i]) >= wanted]
        if fitting:
            best = min(fitting, key=lambda i: (class_bytes(self.largest[i]), i))
        elif self.idle:
            best = max(self.idle, key=lambda i: (self.largest[i], -i))
        else:
            return self.add(nbytes)
        self.idle.remove(best)
        self.largest[best] = max(self.largest[best], nbytes)
        return best

    def add(self, nbytes: int) -> int:
        """A new buffer."""
        self.largest.append(nbytes)
        return len(self.largest) - 1

    def give(self, index: int, nbytes: int) -> None:
        """Buffer `index` is idle again."""
        self.used -= nbytes
        self.idle.append(index)

    def planned(self) -> tuple[PlannedBuffer, ...]:
        """The buffers as the plan lists them."""
        return tuple(PlannedBuffer(i, class_bytes(n), n) for i, n in enumerate(self.largest))


class _Planner:
    def __init__(self, graph: Graph, live: Liveness, inplace: bool, contiguous_only: AbstractSet[str]) -> None:
        self.graph = graph
        self.live = live
        self.allow_inplace = inplace
        self.contiguous_only = contiguous_only
        self.end = len(graph)
        self.buffers: dict[str, _Buffers] = {}
        self.regions: dict[str, list[Region]] = {}
        self.storages: dict[Place, _Storage] = {}
        self.active: list[_Storage] = []
        self.active_backend: list[str] = []
        self.placements: dict[Place, Placement] = {}
        self.taken: dict[int, int] = {}
        self.scratch: dict[str, Placement] = {}

    def plan(self, splits: Sequence[Split], scratch: Mapping[str, int]) -> MemoryPlan:
        for split in splits:
            self.buffers.setdefault(split.backend, _Buffers())
        for backend, nbytes in sorted(scratch.items()):
            if nbytes:
                self.scratch[backend] = Placement(self.buffers[backend].take(nbytes), 0, nbytes, (1,), "scratch")
        self._place_leaves()
        starts = {split.nodes[0]: split.index for split in splits}
        for node in self.graph:
            for copy in self.live.copies.get(starts.get(node.id, -1), ()):
                self._own((copy.node, copy.target), "staged", node.id)
            if is_computed(node) and node.spec.writes is None:
                self._place_output(node)
            self._release(node.id)
        return self._finish()

    def _place_leaves(self) -> None:
        """Inputs and regions, before the walk: their buffers are never idle during it."""
        for place in sorted(p for p in self.live.members if self.graph[p[0]].is_leaf()):
            node = self.graph[place[0]]
            if node.op == "kv":
                self._place_region(place, node)
            else:
                self._own(place, "input", -1)
        for node in self.graph:
            owner = self.graph[self.graph.owner(node.id)]
            if node.spec.writes is not None and owner.op != "kv":
                raise PlanError(f"{node} writes into {owner}, which isn't a KV region")

    def _place_region(self, place: Place, node: Node) -> None:
        region = Region(node.attrs.key, node.attrs.cells, node.attrs.width, node.attrs.dtype)
        for backend, known in self.regions.items():
            for other in known:
                if other.key == region.key and (backend != place[1] or other != region):
                    raise PlanError(f"one KV region can't be {region} on {place[1]} and {other} on {backend}")
        listed = self.regions.setdefault(place[1], [])
        if region not in listed:
            listed.append(region)
        storage = _Storage("kv", listed.index(region), region.nbytes, -1, self.end)
        self._settle(place, storage, Window(node.type, 0, node.strides))

    def _own(self, place: Place, kind: Kind, start: int) -> _Storage:
        """Give `place` a buffer of its own from time `start`."""
        node, strides = self.graph[place[0]], self.live.aliases[place].strides
        window = Window(node.type, 0, strides)
        nbytes = max(window.length, node.type.nbytes)
        end = self.end if kind == "input" else max(start, self.live.last_use(place))
        storage = _Storage(kind, self.buffers.setdefault(place[1], _Buffers()).take(nbytes), nbytes, start, end)
        self.active.append(storage)
        self.active_backend.append(place[1])
        self._settle(place, storage, window)
        return storage

    def _settle(self, owner: Place, storage: _Storage, base: Window) -> None:
        """Record where the owner's members lie, given that the owner lies at `base`."""
        self.storages[owner] = storage
        for member in self.live.members[owner]:
            place, node = (member, owner[1]), self.graph[member]
            alias = self.live.aliases[place]
            own = member == owner[0]
            window = Window(node.type, base.offset + alias.offset, base.strides if own else alias.strides)
            storage.residents.append(Resident(member, window, self.live.reads.get(place, ())))
            kind: Kind = storage.kind if own else ("kv" if storage.kind == "kv" else "view")
            self.placements[place] = Placement(storage.buffer, window.offset, window.length, window.strides, kind)

    def _place_output(self, node: Node) -> None:
        assert node.backend is not None
        place = (node.id, node.backend)
        found = self._window_to_take(node, node.backend) if self.allow_inplace else None
        if found is None:
            self._own(place, "value", node.id)
            return
        operand, storage, window = found
        base = Window(node.type, window.offset, node.type.strides if window.is_contiguous else window.strides)
        self._settle(place, storage, base)
        placed = self.placements[place]
        self.placements[place] = Placement(placed.buffer, placed.offset, placed.length, placed.strides, "inplace")
        storage.end = max(storage.end, self.live.last_use(place))
        self.taken[node.id] = operand

    def _window_to_take(self, node: Node, backend: str) -> tuple[int, _Storage, Window] | None:
        """The first operand, in the op's order of preference, whose bytes the output may take over."""
        viewed = len(self.live.members[node.id, backend]) > 1
        strided = backend not in self.contiguous_only
        operands = {name: source.id for name, source in node.operands(self.graph)}
        for name in node.spec.inplace:
            alias = self.live.aliases.get((operands.get(name, -1), backend))
            if alias is None:
                continue
            storage = self.storages[alias.owner]
            if storage.kind in ("input", "kv"):
                continue
            resident = next(r for r in storage.residents if r.node == operands[name])
            if may_take_over(node, resident.window, storage.residents, viewed, strided):
                return operands[name], storage, resident.window
        return None

    def _release(self, now: int) -> None:
        """Buffers whose bytes nobody reads after `now` are idle."""
        for i in reversed(range(len(self.active))):
            storage = self.active[i]
            if storage.end <= now:
                self.buffers[self.active_backend[i]].give(storage.buffer, storage.nbytes)
                del self.active[i], self.active_backend[i]

    def _finish(self) -> MemoryPlan:
        return MemoryPlan(
            MappingProxyType({b: buffers.planned() for b, buffers in self.buffers.items()}),
            MappingProxyType({b: tuple(regions) for b, regions in self.regions.items()}),
            MappingProxyType(dict(sorted(self.placements.items()))),
            MappingProxyType({place: self._interval(place) for place in sorted(self.placements)}),
            MappingProxyType(dict(self.taken)),
            MappingProxyType(dict(self.live.copies)),
            MappingProxyType(dict(self.live.homes)),
            MappingProxyType({b: buffers.peak for b, buffers in self.buffers.items()}),
            MappingProxyType(self.scratch),
        )

    def _interval(self, place: Place) -> Interval:
        storage = self.storages.get(place)
        if storage is not None and place[0] not in self.taken:
            return Interval(storage.start, storage.end)
        return Interval(place[0], max(place[0], self.live.last_read(place)))
