"""The result of `minfer-bench sampling`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.report.markdown import facts, settings_text, table
from minfer_models.bench.stats import Ratio, Summary


@dataclass(frozen=True, slots=True)
class SamplerCost:
    """A sampler's `seconds` a choice, and their `share` of the decode steps that they came behind."""

    name: str
    stages: list[str]
    seconds: Summary
    share: Ratio


@dataclass(frozen=True, slots=True)
class SamplingReport:
    """What choices cost from rows of `vocabulary` logits behind `history` tokens; `step` is a decode step's seconds."""

    kind: ClassVar[str] = "sampling"

    conditions: Conditions
    settings: dict[str, object]
    vocabulary: int
    history: int
    step: Summary
    samplers: tuple[SamplerCost, ...]

    def markdown(self) -> str:
        """A row per sampler."""
        rows = [
            [s.name, f"{1e6 * s.seconds.median:.0f}", f"{1e6 * s.seconds.max:.0f}", f"{100 * s.share.median:.2f} %"]
            for s in self.samplers
        ]
        choices = self.samplers[0].seconds.n
        return "\n".join(
            [
                table(["sampler", "median us", "max us", "of a decode step"], rows),
                "",
                f"- a decode step: {1e3 * self.step.median:.2f} ms (median of {self.step.n})",
                f"- {self.vocabulary} logits, {self.history} tokens of history, {choices} choices each",
                f"- settings: {settings_text(self.settings)}",
                *facts(self.conditions),
            ]
        )

    def records(self) -> Sequence[Mapping[str, object]]:
        """One record per sampler."""
        return [
            {
                "sampler": s.name,
                "stages": " ".join(s.stages),
                "median_seconds": s.seconds.median,
                "max_seconds": s.seconds.max,
                "share": s.share.median,
                "share_low": s.share.low,
                "share_high": s.share.high,
                "choices": s.seconds.n,
                "step_seconds": self.step.median,
                "vocabulary": self.vocabulary,
                "history": self.history,
                **self.settings,
                **self.conditions.record(),
            }
            for s in self.samplers
        ]
