"""The result of `minfer-bench neighbour`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.report.markdown import facts, ratio_text, settings_text, table
from minfer_models.bench.rounds import Rounds
from minfer_models.bench.stats import Ratio, Summary, matched_ratio

CHOSEN, FIXED, ONE, ALONE = "chosen", "fixed", "one", "one alone"
"""The sides: the engine chooses its threads; all of them; one; one without the neighbour."""
GOAL = 0.8
"""Of what one thread does alone, decoding keeps at least this beside a neighbour."""


@dataclass(frozen=True, slots=True)
class SideResult:
    """Decoding on one side: seconds and tokens per second of every round; `threads` are the most it takes."""

    side: str
    threads: int
    neighbour: bool
    seconds: tuple[float, ...]
    rates: tuple[float, ...]
    rate: Summary

    @classmethod
    def of(cls, rounds: Rounds, side: str, threads: int) -> Self:
        """One side's part of the rounds."""
        rates = rounds.rates(side)
        return cls(side, threads, side != ALONE, tuple(rounds.seconds(side)), tuple(rates), Summary.of(rates))


@dataclass(frozen=True, slots=True)
class NeighbourReport:
    """Decoding beside a process that keeps the core `cpu` busy. `settings` are those of the side that chooses.

    `against` has the ratio of the choosing side's speed over that of every other side. `walks` counts that side's
    forwards, its warm-up's too, by the number of threads that took part: one, two, and so on.
    """

    kind: ClassVar[str] = "neighbour"

    conditions: Conditions
    settings: dict[str, object]
    cpu: int
    results: tuple[SideResult, ...]
    against: dict[str, Ratio]
    goal: float
    walks: tuple[int, ...]

    @classmethod
    def of(
        cls,
        conditions: Conditions,
        settings: dict[str, object],
        cpu: int,
        results: Sequence[SideResult],
        walks: Sequence[int],
    ) -> Self:
        """From the sides' results, the choosing one's among them."""
        ours = next(r for r in results if r.side == CHOSEN)
        against = {r.side: matched_ratio(ours.rates, r.rates) for r in results if r is not ours}
        return cls(conditions, settings, cpu, tuple(results), against, GOAL, tuple(walks))

    def markdown(self) -> str:
        """What came of it, then a row per side."""
        ratio = self.against[ALONE]
        verdict = "reached" if ratio.median >= self.goal else "NOT REACHED"
        headers = ["decode", "threads", "neighbour", "median tok/s", "spread", "chosen / this"]
        taken = ", ".join(f"{n} x {threads}" for threads, n in enumerate(self.walks, 1) if n)
        return "\n".join(
            [
                f"- beside a busy core, decoding keeps {ratio_text(ratio)} of what one thread does alone; "
                f"at least {self.goal:g} is the aim: {verdict}",
                "",
                table(headers, [self._row(r) for r in self.results]),
                "",
                f"- forwards of the side that chooses, by threads: {taken}",
                f"- the neighbour: a loop on core {self.cpu}",
                f"- settings: {settings_text(self.settings)}",
                *facts(self.conditions),
            ]
        )

    def records(self) -> Sequence[Mapping[str, object]]:
        """One record per side."""
        return [
            {
                "side": r.side,
                "most_threads": r.threads,
                "neighbour": r.neighbour,
                "repetitions": r.rate.n,
                "median_rate": r.rate.median,
                "min_rate": r.rate.min,
                "max_rate": r.rate.max,
                "chosen_over_this": self.against[r.side].median if r.side in self.against else 1.0,
                **{name: value for name, value in self.settings.items() if name not in ("threads", "threads_fixed")},
                **self.conditions.record(),
            }
            for r in self.results
        ]

    def _row(self, r: SideResult) -> list[str]:
        threads = f"up to {r.threads}" if r.side == CHOSEN else str(r.threads)
        ratio = ratio_text(self.against[r.side]) if r.side in self.against else ""
        return [r.side, threads, "yes" if r.neighbour else "no", f"{r.rate.median:.1f}", f"{r.rate.spread:.1f}", ratio]
