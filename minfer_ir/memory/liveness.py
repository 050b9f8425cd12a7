"""Where values live and when they are read: aliases resolved to owners, and read times per backend.

A *place* is (node id, backend). The storage of a value on a backend belongs to an owner: a computed node, an
input, a KV region, or a staging copy of what another backend computed. Time is the node index; a split's
staging copies are made at the index of its first node, before that node runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minfer_ir.evaluate import N_ROWS
from minfer_ir.graph import Graph, Node, storage_source
from minfer_ir.memory.window import PlanError
from minfer_ir.runtime.backend import Split
from minfer_ir.types import Strides

Place = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Alias:
    """A value as a window of its owner's storage: bytes from the owner's first element, and byte strides."""

    owner: Place
    offset: int
    strides: Strides


@dataclass(frozen=True, slots=True)
class Copy:
    """The value of `node` is copied from the backend that has it to the one that is about to read it."""

    node: int
    source: str
    target: str


@dataclass(frozen=True)
class Liveness:
    """What planning needs to know about a graph's values.

    `aliases` has every place that is read or that a node defines. `reads` are the ascending times at which a
    place is read; a graph output is read at `len(graph)`. `members` lists the values whose bytes lie in an owner's
    storage, itself first. `homes` is the backend that has a value without a copy; inputs have none. `copies` lists, by
    split index, what is staged when the split starts.
    """

    aliases: Mapping[Place, Alias]
    reads: Mapping[Place, tuple[int, ...]]
    members: Mapping[Place, tuple[int, ...]]
    homes: Mapping[int, str]
    copies: Mapping[int, tuple[Copy, ...]]

    def last_read(self, place: Place) -> int:
        """The last time `place` is read; -1 when it never is."""
        times = self.reads.get(place, ())
        return times[-1] if times else -1

    def last_use(self, owner: Place) -> int:
        """The last time any value in the owner's storage is read; -1 when none is."""
        return max(self.last_read((node, owner[1])) for node in self.members[owner])


def analyze(graph: Graph, splits: Sequence[Split]) -> Liveness:
    """Resolve aliases and read times; raises PlanError when a split can't reach a value that it reads."""
    check_splits(graph, splits)
    return _Analysis(graph, splits).finish()


def check_splits(graph: Graph, splits: Sequence[Split]) -> None:
    """Raise PlanError unless the splits hold every computed node once, in order, on the node's own backend."""
    order: list[int] = []
    for split in splits:
        if not split.nodes:
            raise PlanError(f"split {split.index} on {split.backend} has no nodes")
        computed = [n for n in split.nodes if is_computed(graph[n])]
        if foreign := [n for n in computed if graph[n].backend != split.backend]:
            node = graph[foreign[0]]
            raise PlanError(f"{node} is assigned to {node.backend}, but split {split.index} runs on {split.backend}")
        if late := [r for r in split.reads if r >= split.nodes[0]]:
            raise PlanError(
                f"split {split.index} starts at {graph[split.nodes[0]]} and reads {graph[late[0]]} after it"
            )
        order += computed
    if order != (expected := [n.id for n in graph if is_computed(n)]):
        odd = sorted(set(order) ^ set(expected)) or [a for a, b in zip(order, [*expected, -1], strict=False) if a != b]
        raise PlanError(f"the splits don't hold every computed node once and in order, see {graph[odd[0]]}")


def is_computed(node: Node) -> bool:
    """True for nodes that a backend runs: neither a leaf nor a view."""
    return node.view is None and not node.is_leaf()


class _Analysis:
    def __init__(self, graph: Graph, splits: Sequence[Split]) -> None:
        self.graph = graph
        self.splits = splits
        self.aliases: dict[Place, Alias] = {}
        self.reads: dict[Place, set[int]] = {}
        self.homes: dict[int, str | None] = {}
        self.stagings: dict[Place, int] = {}

    def finish(self) -> Liveness:
        wanted = {(r, s.backend) for s in self.splits for r in s.reads}
        for node in self.graph:
            self.homes[node.id] = self._home(node, wanted)
        copies = {split.index: self._stage(split) for split in self.splits}
        self._read_staged()
        self._read_operands()
        self._read_outputs()
        for node_id, home in self.homes.items():
            if home is not None:
                self._locate((node_id, home))
        self._place_row_counts()
        members: dict[Place, list[int]] = {}
        for (node_id, _), alias in sorted(self.aliases.items()):
            members.setdefault(alias.owner, []).append(node_id)
        return Liveness(
            self.aliases,
            {place: tuple(sorted(times)) for place, times in self.reads.items()},
            {owner: tuple(nodes) for owner, nodes in members.items()},
            {node_id: home for node_id, home in self.homes.items() if home is not None},
            copies,
        )

    def _stage(self, split: Split) -> tuple[Copy, ...]:
        """The copies made when `split` starts; what several splits of a backend list is copied for the first."""
        copies: list[Copy] = []
        for source in dict.fromkeys(split.reads):
            place, home = (source, split.backend), self.homes[source]
            if home is None or home == split.backend or place in self.stagings:
                continue  # an input, or here already
            owner = self.graph[self.graph.owner(source)]
            if owner.op == "kv":
                region = f"{self.graph[source]} lies in KV region {owner.attrs.key!r} on {home}"
                raise PlanError(f"{region}; {split.backend} can't read it")
            self.stagings[place] = split.nodes[0]
            copies.append(Copy(source, home, split.backend))
        return tuple(copies)

    def _read_staged(self) -> None:
        """Every split that lists a staged value reads the original and the copy.

        So both are still whole when a scheduler copies again for a later split.
        """
        for split in self.splits:
            for source in split.reads:
                home = self.homes[source]
                if (source, split.backend) in self.stagings and home is not None:
                    self._read((source, home), split.nodes[0])
                    self._read((source, split.backend), split.nodes[0])

    def _home(self, node: Node, wanted: set[Place]) -> str | None:
        """The backend that keeps the value; None for leaves and for views of inputs, which are wherever they're read.

        A view is at home on its own backend when its source is there too, else where its source is.
        """
        if node.is_leaf():
            return None
        if node.view is None:
            if node.backend is None:
                raise PlanError(f"{node} has no backend")
            return node.backend
        source = self.homes[node.view.source]
        if source is None or node.backend is None or (node.view.source, node.backend) not in wanted:
            return source
        return node.backend

    def _read_operands(self) -> None:
        lasting = {node: later for split in self.splits for node, later in split.lasting}
        for node in self.graph:
            if not is_computed(node):
                continue
            assert node.backend is not None
            for source in dict.fromkeys(node.sources):
                if self.graph[source].op not in ("weight", "weight_concat"):
                    self._read((source, node.backend), node.id)
                    if node.id in lasting:
                        self._read((source, node.backend), lasting[node.id])

    def _read_outputs(self) -> None:
        for output in self.graph.outputs:
            home = self.homes[output]
            if home is None and self.splits and self.graph[output].op not in ("weight", "weight_concat"):
                home = self.splits[0].backend
            if home is not None:
                self._read((output, home), len(self.graph))

    def _read(self, place: Place, time: int) -> None:
        self.reads.setdefault(place, set()).add(time)
        owner = self._locate(place).owner
        if time < self.stagings.get(owner, 0):
            early, copied = self.graph[place[0]], self.graph[owner[0]]
            raise PlanError(f"{early} is read at {time} on {place[1]}, before a split there lists {copied}")

    def _locate(self, place: Place) -> Alias:
        """The window of `place` in its owner's storage, found along the alias chain."""
        found = self.aliases.get(place)
        if found is not None:
            return found
        chain, current = [place], self._next(place)
        while current is not None:
            chain.append(current)
            current = self._next(current)
        for link in reversed(chain):
            if link not in self.aliases:
                self.aliases[link] = self._alias(link)
        return self.aliases[place]

    def _next(self, place: Place) -> Place | None:
        """The place whose storage `place` shares; None for an owner."""
        source = storage_source(self.graph[place[0]])
        return None if source is None or place in self.stagings else (source, place[1])

    def _alias(self, place: Place) -> Alias:
        node, backend = self.graph[place[0]], place[1]
        if place in self.stagings:
            # Views were derived from the source's strides, so a copy that views look into keeps them.
            viewed = any(self.graph[u].view is not None for u in self.graph.users[node.id])
            return Alias(place, 0, node.strides if viewed else node.type.strides)
        base = self._next(place)
        if base is not None:
            into = self.aliases[base]
            return Alias(into.owner, into.offset + (node.view.offset if node.view else 0), node.strides)
        if node.op in ("weight", "weight_concat"):
            raise PlanError(f"{node} is a weight and has no place among the values of {backend}")
        if not node.is_leaf() and self.homes[node.id] != backend:
            raise PlanError(f"{node} was computed on {node.backend}; a split on {backend} uses it but doesn't list it")
        return Alias(place, 0, node.strides)

    def _place_row_counts(self) -> None:
        """Every backend in use reads the number of rows."""
        for node in self.graph:
            if node.op == "input" and node.attrs.key == N_ROWS:
                for backend in dict.fromkeys(s.backend for s in self.splits):
                    self._locate((node.id, backend))
