"""Memory that launches take beside values: what a node wants is known before anything is placed, and taken exactly."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from minfer_ir.graph import Graph, Node
from minfer_ir.runtime.backend import BackendError
from minfer_kernels.gpu.kernels.attention.choices import DEFAULT, AttentionOptions
from minfer_kernels.gpu.targets import INTERPRETER, Target

ALIGNMENT = 256
"""Of every piece, in bytes: as a buffer's, so that wide loads find what they ask for."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What the launches of a node, or of several in one launch, take beside values.

    `scratch`: bytes of each piece that they write before they read it, theirs until the next node's. `counters`: int32
    zeros, of each piece, that they leave as zeros. `kept`: bytes of pieces that the rest of the program goes on to
    read, by what tells them from others.
    """

    scratch: tuple[int, ...] = ()
    counters: tuple[int, ...] = ()
    kept: Mapping[Hashable, int] = field(default_factory=dict[Hashable, int])

    @classmethod
    def together(cls, several: Iterable[Wants]) -> Wants:
        """All of them at once."""
        scratch, counters, kept = list[int](), list[int](), dict[Hashable, int]()
        for wants in several:
            scratch += wants.scratch
            counters += wants.counters
            kept |= wants.kept
        return cls(tuple(scratch), tuple(counters), kept)


@dataclass(frozen=True, slots=True)
class Need:
    """What a program takes: bytes of the fullest node and of what is kept, and int32 of counters."""

    passing: int
    kept: int
    counters: int

    @classmethod
    def of(cls, wants: Sequence[Wants]) -> Need:
        """Of a program whose launches come one after the other."""
        kept = Wants.together(wants).kept
        return cls(
            max((_room(w.scratch) for w in wants), default=0),
            _room(kept.values()),
            max((_room(4 * n for n in w.counters) // 4 for w in wants), default=0),
        )

    @property
    def scratch(self) -> int:
        """Bytes of both."""
        return self.passing + self.kept


class Dealer:
    """Deals a program's memory out, a node's pieces at a time."""

    def __init__(self, need: Need, scratch: torch.Tensor, counters: torch.Tensor) -> None:
        if len(scratch) < need.scratch or len(counters) < need.counters:
            raise BackendError(f"a program wants {need} and has {len(scratch)} bytes and {len(counters)} counters")
        self._passing, self._kept = scratch[: need.passing], scratch[need.passing :]
        self._counters = counters
        self._kept_at = 0
        self._open, self._at = Wants(), (0, 0)
        self._taken: tuple[list[int], list[int]] = ([], [])

    def begin(self, wants: Wants) -> None:
        """Whatever comes now is for launches that want `wants`, over what those before had."""
        self._open, self._at, self._taken = wants, (0, 0), ([], [])

    def end(self, who: str) -> None:
        """Raise BackendError where something else was taken than wanted."""
        scratch, counters = map(tuple, self._taken)
        if (scratch, counters) != (self._open.scratch, self._open.counters):
            raise BackendError(f"{who} declared {self._open} and took {scratch} bytes and {counters} counters")

    def scratch(self, nbytes: int) -> torch.Tensor:
        """The next piece, as bytes; what it holds is anybody's."""
        at, counters = self._at
        self._taken[0].append(nbytes)
        self._at = at + _aligned(nbytes), counters
        return _piece(self._passing, at, nbytes)

    def counters(self, n: int) -> torch.Tensor:
        """The next int32 zeros."""
        scratch, at = self._at
        self._taken[1].append(n)
        self._at = scratch, at + _aligned(4 * n) // 4
        return _piece(self._counters, at, n)

    def kept(self, nbytes: int) -> torch.Tensor:
        """A piece for the rest of the program, as bytes."""
        at, self._kept_at = self._kept_at, self._kept_at + _aligned(nbytes)
        return _piece(self._kept, at, nbytes)


def _piece(memory: torch.Tensor, at: int, n: int) -> torch.Tensor:
    if at + n > len(memory):
        raise BackendError(f"{n} {memory.dtype} of scratch at {at} of {len(memory)}: more than any launch declared")
    return memory[at : at + n]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _room(sizes: Iterable[int]) -> int:
    return sum(map(_aligned, sizes))


class Shapes:
    """What launches are chosen by: a graph and how a backend computes it. Memory comes later."""

    def __init__(
        self,
        graph: Graph,
        device: torch.device,
        attention: AttentionOptions = DEFAULT,
        invariant: bool = False,
        target: Target = INTERPRETER,
    ) -> None:
        self.graph, self.device, self.attention = graph, device, attention
        self.invariant = invariant
        """Whether every row takes the kernels of few rows."""
        self.target = target
        """What tiles are chosen for."""

    def sources(self, node: Node) -> list[Node]:
        """The operand nodes in declaration order."""
        return [self.graph[s] for s in node.sources]

    @property
    def ptx(self) -> bool:
        """Whether kernels may use inline PTX: on an NVIDIA device, not under the interpreter."""
        return self.device.type == "cuda" and torch.version.hip is None


WantsOf = Callable[[Shapes, Node], Wants]
