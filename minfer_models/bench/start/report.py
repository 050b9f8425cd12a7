"""The result of `minfer-bench start`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar, Self

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.report.markdown import MIB, facts, table
from minfer_models.bench.stats import Summary

PARTS = {
    "python": ("began", "Python itself"),
    "imports": ("opened", "imports and the command line"),
    "plan": ("planned", "opening the file, making the plan"),
    "weights": ("loaded", "taking in the weights, vocabulary, kernels"),
    "token": ("first", "the prompt and the first token"),
}
"""The parts of a start in order: the mark that ends each, and what it is."""


@dataclass(frozen=True, slots=True)
class StartRun:
    """One start, in seconds: `seconds` until the first character of the text was read, of which `parts` are known.

    `peak_bytes` is the most memory the process held. `compiled` counts kernels that weren't cached.
    """

    seconds: float
    parts: dict[str, float]
    compiled: int
    peak_bytes: int

    @classmethod
    def of(cls, seconds: float, began: float, told: Mapping[str, Any]) -> Self:
        """From what the process told, whose clock is this one's; a stage that never came takes no time."""
        parts: dict[str, float] = {}
        last = began
        for part, (mark, _) in PARTS.items():
            reached = told["marks"].get(mark, last)
            parts[part], last = reached - last, reached
        return cls(seconds, parts, told["compiled"], told["peak_bytes"])


@dataclass(frozen=True, slots=True)
class StartReport:
    """How long new processes took to their first token. `cold`: each compiled its kernels."""

    kind: ClassVar[str] = "start"

    conditions: Conditions
    cold: bool
    runs: tuple[StartRun, ...]

    @property
    def seconds(self) -> Summary:
        """Of all runs."""
        return Summary.of([run.seconds for run in self.runs])

    def markdown(self) -> str:
        """A table of the parts, then every run."""
        s, parts = self.seconds, {part: [run.parts[part] for run in self.runs] for part in PARTS}
        rows = [_row(PARTS[part][1], values) for part, values in parts.items()]
        peak = max(run.peak_bytes for run in self.runs)
        size = self.conditions.model.bytes
        return "\n".join(
            [
                table(
                    ["from a process's start", "median s", "min", "max"],
                    [*rows, _row("to the first token", [run.seconds for run in self.runs])],
                ),
                "",
                f"- {s.n} starts, {'with an empty kernel cache' if self.cold else 'kernels cached'}: "
                + ", ".join(f"{run.seconds:.3f}" for run in self.runs),
                f"- kernels compiled: {max(run.compiled for run in self.runs)}",
                f"- peak memory {peak / MIB:.0f} MiB ({peak / size:.2f} x the file)",
                *facts(self.conditions),
            ]
        )

    def records(self) -> Sequence[Mapping[str, object]]:
        """One record per start."""
        return [
            {
                "start": number,
                "cold": self.cold,
                "seconds": run.seconds,
                **{f"{part}_seconds": value for part, value in run.parts.items()},
                "compiled": run.compiled,
                "peak_bytes": run.peak_bytes,
                **self.conditions.record(),
            }
            for number, run in enumerate(self.runs, 1)
        ]


def _row(name: str, values: Sequence[float]) -> list[str]:
    return [name, *(f"{v:.3f}" for v in (median(values), min(values), max(values)))]
