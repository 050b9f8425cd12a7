"""Cut the node list into runs that one backend executes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from minfer_ir.graph import Graph
from minfer_ir.passes.base import Lowering, LoweringError
from minfer_ir.runtime.backend import LAUNCH_GROUPS, ReadsLonger, Split


@dataclass(frozen=True, slots=True)
class MakeSplits:
    """Consecutive nodes on one backend form a split; values that cross are staged at the start of the reading split."""

    name: str = "split"

    def run(self, state: Lowering) -> Lowering:
        """The state with `splits`; raises LoweringError for a graph that computes nothing."""
        made = make_splits(state.graph, state.params.fusions_off & set(LAUNCH_GROUPS))
        splits = tuple(_with_lasting(split, state) for split in made)
        if not any(not state.graph[n].is_leaf() and state.graph[n].view is None for s in splits for n in s.nodes):
            raise LoweringError("the graph computes nothing: its outputs are leaves, or views of them")
        return replace(state, splits=splits)


def _with_lasting(split: Split, state: Lowering) -> Split:
    backend = state.backends.get(split.backend)
    return replace(split, lasting=backend.lasting(state.graph, split)) if isinstance(backend, ReadsLonger) else split


def make_splits(graph: Graph, groups_off: frozenset[str] = frozenset()) -> tuple[Split, ...]:
    """The splits in execution order. Leaves belong to none; weights, inputs and regions never cross."""
    runs: list[list[int]] = []
    for node in graph:
        if node.is_leaf():
            continue
        if not runs or graph[runs[-1][-1]].backend != node.backend:
            runs.append([])
        runs[-1].append(node.id)
    return tuple(
        Split(i, graph[run[0]].backend or "", tuple(run), _reads(graph, run), groups_off) for i, run in enumerate(runs)
    )


def _reads(graph: Graph, run: list[int]) -> tuple[int, ...]:
    backend = graph[run[0]].backend
    sources = (s for n in run for s in graph[n].sources)
    crossing = (s for s in sources if not graph[s].is_leaf() and graph[s].backend != backend)
    return tuple(sorted(set(crossing)))
