"""What outlives a graph: the pools, registered weights and KV regions of an engine's backends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from minfer_ir.evaluate import WeightSource
from minfer_ir.graph import Graph, Node
from minfer_ir.memory.budget import Demand, budget_bytes, check_budget
from minfer_ir.memory.plan import MemoryPlan
from minfer_ir.memory.pools import Pool, Regions
from minfer_ir.memory.report import MemoryReport
from minfer_ir.runtime.backend import Backend, Probed
from minfer_ir.runtime.probe import Probe


@dataclass(frozen=True, slots=True)
class _WeightKey:
    """One registration: a backend keeps a weight in the forms that its uses (op names) need, or always in one."""

    backend: str
    names: tuple[str, ...]
    version: int
    forms: frozenset[str]
    uses: frozenset[str] = field(compare=False)


def call_sites(backends: Iterable[Backend]) -> list[str]:
    """The call sites of the backends' own: what a probe must know beside the runtime's."""
    return [site for backend in backends if isinstance(backend, Probed) for site in backend.call_sites]


class Resources:
    """Owned by one engine and shared by its graphs, of which one runs at a time.

    `budget` limits the bytes of every backend, `limits` those of one by name; without, the device's available memory is
    the only bound.
    """

    def __init__(
        self,
        backends: Iterable[Backend],
        weights: WeightSource,
        probe: Probe | None = None,
        budget: int | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self.backends: Mapping[str, Backend] = {b.name: b for b in backends}
        self.pools = {name: Pool(b) for name, b in self.backends.items()}
        self.regions = Regions()
        self.probe = probe or Probe((), call_sites(self.backends.values()))
        for backend in self.backends.values():
            if isinstance(backend, Probed):
                backend.watch(self.probe)
        self.budget = budget
        self._limits = dict(limits or {})
        self._weights = weights
        self._registered: dict[_WeightKey, int] = {}
        self._peaks: dict[str, int] = {}

    def weights_of(self, graph: Graph, backend: str) -> dict[int, int]:
        """The ids of the weights that `graph` reads on `backend`, registered on first use."""
        wanted = self._wanted(graph, backend)
        return {leaf: self._register(graph[leaf], key) for leaf, key in wanted.items()}

    def reserve(self, graph: Graph, plan: MemoryPlan) -> dict[str, dict[int, int]]:
        """Pool buffers for every planned buffer, by backend; refused by the budget before anything is taken."""
        for name in plan.buffers:
            check_budget(name, self.demand(name, graph, plan), self.backends[name].memory(), self._limit(name))
        self.probe.hit("pool.allocate")
        reserved = {name: self.pools[name].reserve(plan.sizes(name)) for name in plan.buffers}
        for name in plan.buffers:
            self._peaks[name] = max(self._peaks.get(name, 0), self._held(name))
        return reserved

    def region_buffers(self, plan: MemoryPlan, backend: str) -> tuple[int, ...]:
        """The buffers of the plan's KV regions on `backend`."""
        self.probe.hit("kv.region")
        return self.regions.ensure(plan.regions.get(backend, ()), self.backends[backend])

    def demand(self, backend: str, graph: Graph, plan: MemoryPlan) -> Demand:
        """What `graph` would newly take on `backend`, and what is held there."""
        pool, device = self.pools[backend], self.backends[backend]
        fresh = {graph[leaf]: key for leaf, key in self._wanted(graph, backend).items() if key not in self._registered}
        weights = sum(device.weight_need(leaf.attrs.dtype, leaf.type.shape, key.uses) for leaf, key in fresh.items())
        return Demand(
            pool_need=sum(pool.missing(plan.sizes(backend))),
            kv_need=self.regions.missing(plan.regions.get(backend, ())),
            weights=device.weight_bytes(),
            kv=self.regions.nbytes(device),
            pool=pool.nbytes,
            weights_need=weights + device.table_need(graph),
            scratch=plan.scratch_bytes(backend),
        )

    def report(self, backend: str, plan: MemoryPlan) -> MemoryReport:
        """Bytes on `backend` while `plan` runs."""
        device, held = self.backends[backend], self._held(backend)
        return MemoryReport(
            backend=backend,
            weights=device.weight_bytes(),
            kv=self.regions.nbytes(device),
            pool=self.pools[backend].nbytes,
            live=plan.live.get(backend, 0),
            peak=max(self._peaks.get(backend, 0), held),
            budget=budget_bytes(self._limit(backend), device.memory(), held),
            scratch=plan.scratch_bytes(backend),
        )

    def _limit(self, backend: str) -> int | None:
        given = [limit for limit in (self.budget, self._limits.get(backend)) if limit is not None]
        return min(given, default=None)

    def _held(self, backend: str) -> int:
        device = self.backends[backend]
        return device.weight_bytes() + self.regions.nbytes(device) + self.pools[backend].nbytes

    def _wanted(self, graph: Graph, backend: str) -> dict[int, _WeightKey]:
        """The weight leaves that nodes on `backend` read, and what each is registered under."""
        found: dict[int, _WeightKey] = {}
        for leaf in graph:
            uses = frozenset(graph[u].op for u in graph.users[leaf.id] if graph[u].backend == backend)
            if leaf.op in ("weight", "weight_concat") and uses:
                keys = leaf.attrs.keys if leaf.op == "weight_concat" else (leaf.attrs.key,)
                forms = frozenset[str]() if self.backends[backend].capabilities.one_weight_form else uses
                found[leaf.id] = _WeightKey(backend, keys, leaf.attrs.version, forms, uses)
        return found

    def _register(self, leaf: Node, key: _WeightKey) -> int:
        if key not in self._registered:
            self.probe.hit("weights.register")
            parts = [self._weights.rows(k) for k in key.names]
            device = self.backends[key.backend]
            name, attrs = "+".join(key.names), leaf.attrs
            self._registered[key] = device.register_weight(name, attrs.dtype, leaf.type.shape, parts, key.uses)
        return self._registered[key]
