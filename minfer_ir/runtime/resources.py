"""What outlives a graph: the pools, registered weights and KV regions of an engine's backends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from minfer_ir.evaluate import WeightSource
from minfer_ir.graph import Graph, Node
from minfer_ir.memory.budget import Demand, budget_bytes, check_budget
from minfer_ir.memory.plan import MemoryPlan
from minfer_ir.memory.pools import Pool, Regions
from minfer_ir.memory.report import MemoryReport
from minfer_ir.runtime.backend import Backend
from minfer_ir.runtime.probe import Probe


class Resources:
    """Owned by one engine and shared by its graphs, of which one runs at a time.

    `budget` limits the bytes of every backend; None leaves the device's available memory as the only bound.
    """

    def __init__(
        self, backends: Iterable[Backend], weights: WeightSource, probe: Probe | None = None, budget: int | None = None
    ) -> None:
        self.backends: Mapping[str, Backend] = {b.name: b for b in backends}
        self.pools = {name: Pool(b) for name, b in self.backends.items()}
        self.regions = Regions()
        self.probe = probe or Probe()
        self.budget = budget
        self._weights = weights
        self._registered: dict[tuple[str, tuple[str, ...], int, frozenset[str]], int] = {}
        self._peaks: dict[str, int] = {}

    def weight(self, backend: str, node: Node, uses: frozenset[str]) -> int:
        """The id of a weight leaf on `backend`, registered on first use."""
        attrs = node.attrs
        keys: tuple[str, ...] = attrs.keys if node.op == "weight_concat" else (attrs.key,)
        known = (backend, keys, attrs.version, uses)
        if known not in self._registered:
            self.probe.hit("weights.register")
            parts = [self._weights.rows(k) for k in keys]
            made = self.backends[backend].register_weight("+".join(keys), attrs.dtype, node.type.shape, parts, uses)
            self._registered[known] = made
        return self._registered[known]

    def weights_of(self, graph: Graph, backend: str, nodes: Sequence[int]) -> dict[int, int]:
        """Weight ids of every weight leaf that `nodes` read on `backend`."""
        leaves = sorted({s for n in nodes for s in graph[n].sources if graph[s].op in ("weight", "weight_concat")})
        return {leaf: self.weight(backend, graph[leaf], self._uses(graph, leaf, backend)) for leaf in leaves}

    def reserve(self, plan: MemoryPlan) -> dict[str, dict[int, int]]:
        """Pool buffers for every planned buffer, by backend; refused by the budget before a pool is asked."""
        for name in plan.buffers:
            check_budget(name, self.demand(name, plan), self.backends[name].memory(), self.budget)
        self.probe.hit("pool.allocate")
        reserved = {name: self.pools[name].reserve(plan.sizes(name)) for name in plan.buffers}
        for name in plan.buffers:
            self._peaks[name] = max(self._peaks.get(name, 0), self._held(name))
        return reserved

    def region_buffers(self, plan: MemoryPlan, backend: str) -> tuple[int, ...]:
        """The buffers of the plan's KV regions on `backend`."""
        self.probe.hit("kv.region")
        return self.regions.ensure(plan.regions.get(backend, ()), self.backends[backend])

    def demand(self, backend: str, plan: MemoryPlan) -> Demand:
        """What `plan` would newly take on `backend`, and what is held there."""
        pool, device = self.pools[backend], self.backends[backend]
        return Demand(
            pool_need=sum(pool.missing(plan.sizes(backend))),
            kv_need=self.regions.missing(plan.regions.get(backend, ())),
            weights=device.weight_bytes(),
            kv=self.regions.nbytes(device),
            pool=pool.nbytes,
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
            budget=budget_bytes(self.budget, device.memory(), held),
        )

    def _held(self, backend: str) -> int:
        device = self.backends[backend]
        return device.weight_bytes() + self.regions.nbytes(device) + self.pools[backend].nbytes

    def _uses(self, graph: Graph, leaf: int, backend: str) -> frozenset[str]:
        return frozenset(graph[u].op for u in graph.users[leaf] if graph[u].backend == backend)
