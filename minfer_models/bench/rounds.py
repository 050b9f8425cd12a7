"""Matched rounds: the sides run in turns, so that whatever else the machine does meets all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from minfer_models.bench.sides import Sample, Side
from minfer_models.bench.workload import BenchError, Workload

MOST_REPEATS = 3
"""How often a run is repeated because a plan was built in it, before that is called an error."""
LEAST_SECONDS = 0.5
"""The system counts CPU time in ticks of 10 ms: of a shorter time it can't say who had it."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The samples of one workload by the side's name, in the order of the rounds; `first` is who began each round."""

    workload: Workload
    samples: Mapping[str, tuple[Sample, ...]]
    first: tuple[str, ...]

    def seconds(self, side: str) -> list[float]:
        """Seconds of every round of one side."""
        return [sample.seconds for sample in self.samples[side]]

    @property
    def others(self) -> float | None:
        """CPUs that other processes had while any side ran, on average; None where that isn't known well."""
        samples = [s for side in self.samples.values() for s in side if s.others is not None]
        seconds = sum(s.seconds for s in samples)
        return sum(s.others or 0.0 for s in samples) / seconds if seconds >= LEAST_SECONDS else None

    def rates(self, side: str) -> list[float]:
        """Tokens per second of every round of one side."""
        return [self.workload.tokens / s for s in self.seconds(side)]


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a measurement stands: `number` 0 is the warm-up. `samples` holds one sample per side at a round's end."""

    workload: Workload
    number: int
    rounds: int
    side: str
    samples: Mapping[str, Sample] | None = None

    @property
    def text(self) -> str:
        """As progress shows it."""
        return f"{self.workload.name}: {'warm-up' if not self.number else f'{self.number} of {self.rounds}'}"


def matched_rounds(
    sides: Sequence[Side], workload: Workload, rounds: int, report: Callable[[Turn], None] = lambda _: None
) -> Rounds:
    """Run `workload` once untimed on every side, then `rounds` times on all of them, the order turning every round.

    `report` hears of every run before it starts, and of every round that is complete. A timed run in which a plan was
    built is run again, so that none is in the samples; raises BenchError when it never ends.
    """
    if rounds < 1:
        raise BenchError(f"a measurement takes at least 1 round, got {rounds}")
    if len({side.name for side in sides}) != len(sides):
        raise BenchError(f"two sides have the same name: {', '.join(side.name for side in sides)}")
    for side in sides:
        report(Turn(workload, 0, rounds, side.name))
        side.run(workload)
    found: dict[str, list[Sample]] = {side.name: [] for side in sides}
    first: list[str] = []
    for number in range(1, rounds + 1):
        order = sides if number % 2 else sides[::-1]
        first.append(order[0].name)
        for side in order:
            report(Turn(workload, number, rounds, side.name))
            found[side.name].append(_planned_run(side, workload))
        report(Turn(workload, number, rounds, "", {name: samples[-1] for name, samples in found.items()}))
    return Rounds(workload, {name: tuple(samples) for name, samples in found.items()}, tuple(first))


def _planned_run(side: Side, workload: Workload) -> Sample:
    for _ in range(MOST_REPEATS):
        sample = side.run(workload)
        if not sample.built:
            return sample
    raise BenchError(
        f"{side.name}: {workload.name} built plans in each of {MOST_REPEATS} runs behind its warm-up: "
        "its time would be the planner's"
    )
