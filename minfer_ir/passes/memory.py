"""The last stages: who lives how long, where everything lies, and the programs over it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from minfer_ir.memory.liveness import analyze
from minfer_ir.memory.plan import plan_memory
from minfer_ir.passes.base import Lowering, LoweringError
from minfer_ir.runtime.backend import UsesScratch
from minfer_ir.runtime.executable import Executable
from minfer_ir.runtime.resources import Resources


@dataclass(frozen=True, slots=True)
class Live:
    """Intervals between which a value's bytes must stay."""

    name: str = "liveness"

    def run(self, state: Lowering) -> Lowering:
        """The state with `liveness`."""
        return replace(state, liveness=analyze(state.graph, state.splits))


@dataclass(frozen=True, slots=True)
class Allocate:
    """A buffer and an offset for every value. `inplace=False` gives every value bytes of its own, for an A/B."""

    name: str = "allocate"
    inplace: bool = True

    def run(self, state: Lowering) -> Lowering:
        """The state with `memory`."""
        rigid = {name for name, b in state.backends.items() if b.capabilities.layouts == "contiguous"}
        plan = plan_memory(
            state.graph, state.splits, inplace=self.inplace, contiguous_only=rigid, scratch=_scratch(state)
        )
        return replace(state, memory=plan)


def _scratch(state: Lowering) -> dict[str, int]:
    """Bytes by backend: its programs run one after the other, and share them."""
    wanted: dict[str, int] = {}
    for split in state.splits:
        backend = state.backends[split.backend]
        if isinstance(backend, UsesScratch):
            wanted[split.backend] = max(wanted.get(split.backend, 0), backend.scratch_need(state.graph, split))
    return wanted


@dataclass(frozen=True, slots=True)
class Lower:
    """Pool buffers for the plan, weights registered, a program per split."""

    resources: Resources = field(compare=False)
    name: str = "lower"

    def run(self, state: Lowering) -> Lowering:
        """The state with `executable`."""
        if state.memory is None:
            raise LoweringError("lower needs the memory plan that allocate makes")
        return replace(state, executable=Executable(state.graph, state.splits, state.memory, self.resources))
