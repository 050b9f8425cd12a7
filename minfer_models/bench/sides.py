"""A side of a measurement: whatever can run a workload from an empty context and say how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from minfer_models.bench.workload import Workload


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of a workload, in seconds. `inside` is what the native programs took, where the side knows.

    `built` counts the plans that were built while the clock ran: such a run isn't a measurement. `others` are CPU
    seconds that other processes had meanwhile, where the side knows.
    """

    seconds: float
    inside: float | None = None
    built: int = 0
    others: float | None = None


class Side(Protocol):
    """One of the things that are compared, or the only one."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def run(self, workload: Workload) -> Sample:
        """Start from an empty context, fill the workload's depth with the clock stopped, then time its tokens.

        Without `refill` the depth may be left from the run before, if what came behind it is cut off.

        All sides of a measurement do the same work: the same tokens in, one token chosen after each that is decoded.
        """
        ...
