"""The result of `minfer-bench roofline`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.report.markdown import facts, settings_text
from minfer_models.bench.roofline.ceilings import Ceilings
from minfer_models.bench.roofline.results import PhaseResult
from minfer_models.bench.roofline.tables import ceilings_table, headlines, phase_table


@dataclass(frozen=True, slots=True)
class RooflineReport:
    """Where the time goes, against what the machine can do. `settings` are the engine's, as resolved."""

    kind: ClassVar[str] = "roofline"

    conditions: Conditions
    settings: dict[str, object]
    ceilings: tuple[Ceilings, ...]
    phases: tuple[PhaseResult, ...]

    def markdown(self) -> str:
        """Headlines, ceilings, and a table per test and thread count."""
        blocks = [
            "\n".join(f"- {line}" for phase in self.phases for line in headlines(phase, self.ceilings_of(phase))),
            ceilings_table(self.ceilings),
            *(phase_table(phase) for phase in self.phases),
            "\n".join([f"- settings: {settings_text(self.settings)}", *facts(self.conditions)]),
        ]
        return "\n\n".join(blocks)

    def records(self) -> Sequence[Mapping[str, object]]:
        """One record per part of every test, the rest of the time as parts of their own."""
        return [record for phase in self.phases for record in self._records(phase)]

    def ceilings_of(self, phase: PhaseResult) -> Ceilings:
        """Those of the phase's threads."""
        return next(c for c in self.ceilings if c.threads == phase.threads)

    def _records(self, phase: PhaseResult) -> list[Mapping[str, object]]:
        ceilings = self.ceilings_of(phase)
        rest = {"waking": phase.waking_seconds, "outside": phase.outside_seconds}
        rows: list[dict[str, object]] = [asdict(part) for part in phase.parts]
        rows += [{**dict.fromkeys(rows[0], None), "kind": name, "seconds": s, "share": s / phase.total_seconds}
                 for name, s in rest.items()]  # fmt: skip
        head = {"test": phase.test, "tokens": phase.tokens, "depth": phase.depth, "threads": phase.threads}
        whole = {
            "total_seconds": phase.total_seconds,
            "median_rate": phase.rate.median,
            "of_bandwidth": None if phase.of_bandwidth is None else phase.of_bandwidth.median,
            "weights_bandwidth": ceilings.weights.rate.median,
            "large_bandwidth": ceilings.large.rate.median,
            "values_bandwidth": ceilings.values[phase.test].rate.median,
            "int8_macs_per_second": ceilings.int8.rate.median,
            "f32_macs_per_second": ceilings.f32.rate.median,
        }
        return [{**head, **row, **whole, **self.settings, **self.conditions.record()} for row in rows]
