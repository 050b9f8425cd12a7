"""The default pipeline: the one list that `minfer dump --stage` takes its names from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from minfer_ir.graph import Graph
from minfer_ir.params import GraphParams
from minfer_ir.passes.assign import Assign
from minfer_ir.passes.base import Lowering, Pass, run_passes
from minfer_ir.passes.canonicalize import Canonicalize
from minfer_ir.passes.clean import Cse, Dce
from minfer_ir.passes.fuse import Fuse
from minfer_ir.passes.legalize import Legalize
from minfer_ir.passes.memory import Allocate, Live, Lower
from minfer_ir.passes.split import MakeSplits
from minfer_ir.runtime.resources import Resources

BuildGraph = Callable[[GraphParams], Graph]


@dataclass(frozen=True, slots=True)
class Build:
    """The model's graph for the params, before any pass has looked at it."""

    graph_of: BuildGraph = field(compare=False)
    name: str = "build"

    def run(self, state: Lowering) -> Lowering:
        """The state with its first graph."""
        return state.with_graph(self.graph_of(state.params))


def default_pipeline(graph_of: BuildGraph, resources: Resources) -> list[Pass]:
    """Every stage in order, each with its own name."""
    return [
        Build(graph_of),
        Canonicalize(),
        Assign(),
        Fuse(),
        Legalize(),
        Fuse("fuse-legal"),
        Cse(),
        Dce(),
        MakeSplits(),
        Live(),
        Allocate(),
        Lower(resources),
    ]


def lower(params: GraphParams, graph_of: BuildGraph, resources: Resources, stop_after: str | None = None) -> Lowering:
    """Run the default pipeline, whole or up to a stage."""
    start = Lowering(params, resources.backends, Graph((), ()))
    return run_passes(default_pipeline(graph_of, resources), start, stop_after)
