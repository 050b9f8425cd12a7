"""What a pass is: a small dataclass with a name that turns one state of lowering into the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from minfer_ir.graph import Graph
from minfer_ir.params import GraphParams
from minfer_ir.runtime.backend import Backend, Split

if TYPE_CHECKING:
    from minfer_ir.memory.liveness import Liveness
    from minfer_ir.memory.plan import MemoryPlan
    from minfer_ir.runtime.executable import Executable


class LoweringError(ValueError):
    """A graph that can't be lowered as asked: the message names node, op, types and reason."""


@dataclass(frozen=True, slots=True)
class Lowering:
    """Where lowering stands. Later fields are filled by later passes."""

    params: GraphParams
    backends: Mapping[str, Backend]
    graph: Graph
    splits: tuple[Split, ...] = ()
    liveness: Liveness | None = None
    memory: MemoryPlan | None = None
    executable: Executable | None = None

    def with_graph(self, graph: Graph) -> Lowering:
        """The same state with another, verified graph; the state itself for the graph that it has."""
        return self if graph is self.graph else replace(self, graph=graph.verify())


class Pass(Protocol):
    """One named step."""

    @property
    def name(self) -> str:
        """The stage name."""
        ...

    def run(self, state: Lowering) -> Lowering:
        """The next state; the given one isn't changed."""
        ...


def run_passes(passes: Sequence[Pass], state: Lowering, stop_after: str | None = None) -> Lowering:
    """Run `passes` in order, up to and including the stage `stop_after`; raises LoweringError for an unknown stage."""
    names = [p.name for p in passes]
    if stop_after is not None and stop_after not in names:
        raise LoweringError(f"unknown stage {stop_after!r}; stages: {', '.join(names)}")
    for step in passes:
        state = step.run(state)
        if step.name == stop_after:
            break
    return state
