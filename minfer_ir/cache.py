"""GraphCache: several lowered graphs, most recently used first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from minfer_ir.params import GraphParams

T = TypeVar("T")


class GraphCache(Generic[T]):
    """Keeps up to `capacity` graphs by their params; the least recently used one makes room.

    `builds` and `reuses` count what happened. `on_evict` hears of the graph that left.
    """

    def __init__(
        self, build: Callable[[GraphParams], T], capacity: int = 8, on_evict: Callable[[T], None] | None = None
    ) -> None:
        if capacity < 1:
            raise ValueError(f"a graph cache holds at least one graph, got {capacity}")
        self._build, self._capacity, self._on_evict = build, capacity, on_evict
        self._graphs: OrderedDict[GraphParams, T] = OrderedDict()
        self._newest: tuple[GraphParams, T] | None = None
        self.builds = 0
        self.reuses = 0

    def get(self, params: GraphParams) -> T:
        """The graph for `params`, built when it isn't there. A build that fails leaves the cache as it was."""
        # Decoding asks for the same object every step; a hash over all its fields costs more than the step's guards.
        if self._newest is not None and self._newest[0] is params:
            self.reuses += 1
            return self._newest[1]
        if params in self._graphs:
            self._graphs.move_to_end(params)
            self.reuses += 1
            self._newest = params, self._graphs[params]
            return self._graphs[params]
        built = self._build(params)
        self.builds += 1
        self._newest = params, built
        self._graphs[params] = built
        if len(self._graphs) > self._capacity:
            _, evicted = self._graphs.popitem(last=False)
            if self._on_evict is not None:
                self._on_evict(evicted)
        return built

    def clear(self) -> None:
        """Forget every graph."""
        self._graphs.clear()
        self._newest = None

    def __iter__(self) -> Iterator[T]:
        return iter(self._graphs.values())

    def __len__(self) -> int:
        return len(self._graphs)
