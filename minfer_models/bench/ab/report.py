"""The result of `minfer-bench ab`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from minfer_models.bench.ab.plans import PlanDiff
from minfer_models.bench.ab.tokens import Agreement
from minfer_models.bench.conditions import Conditions
from minfer_models.bench.report.markdown import KEPT_DEPTH, busy_lines, facts, ratio_text, settings_text, table
from minfer_models.bench.rounds import Rounds
from minfer_models.bench.source import Source
from minfer_models.bench.stats import ENOUGH_ROUNDS, Ratio, Summary, matched_ratio

A, B = "a", "b"


class Described(Protocol):
    """What a side says about itself."""

    source: Source
    settings: dict[str, Any]
    fusions: list[str]
    load_seconds: float

    @property
    def name(self) -> str:
        """a or b."""
        ...


@dataclass(frozen=True, slots=True)
class SideRecord:
    """A side: the revision it was asked for (None: this tree), its source, its settings as resolved.

    `fusions` are the switches that are on.
    """

    name: str
    revision: str | None
    source: Source
    settings: dict[str, object]
    fusions: tuple[str, ...]
    load_seconds: float

    @classmethod
    def of(cls, side: Described, revision: str | None) -> SideRecord:
        """The record of a loaded side."""
        return cls(side.name, revision, side.source, side.settings, tuple(side.fusions), side.load_seconds)


@dataclass(frozen=True, slots=True)
class Round:
    """One round: which side ran first, seconds and tokens per second of both, and b's rate over a's."""

    number: int
    first: str
    a_seconds: float
    b_seconds: float
    a_rate: float
    b_rate: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One test on both sides. `ratio` is of b's rate over a's: above 1, b is the faster one.

    `others` are the CPUs that other processes had while it ran, on average.
    """

    test: str
    phase: str
    tokens: int
    depth: int
    refill: bool
    rounds: tuple[Round, ...]
    a: Summary
    b: Summary
    ratio: Ratio
    others: float | None

    @classmethod
    def of(cls, rounds: Rounds) -> Compared:
        """The test's rounds, summarized."""
        test, a, b = rounds.workload, rounds.rates(A), rounds.rates(B)
        seconds = zip(rounds.seconds(A), rounds.seconds(B), strict=True)
        return cls(
            test=test.name,
            phase=test.phase,
            tokens=test.tokens,
            depth=test.depth,
            refill=test.refill,
            rounds=tuple(
                Round(i + 1, rounds.first[i], sa, sb, test.tokens / sa, test.tokens / sb, sa / sb)
                for i, (sa, sb) in enumerate(seconds)
            ),
            a=Summary.of(a),
            b=Summary.of(b),
            ratio=matched_ratio(b, a),
            others=rounds.others,
        )

    @property
    def verdict(self) -> str:
        """What the interval allows to say."""
        if self.ratio.rounds < ENOUGH_ROUNDS:
            return f"under {ENOUGH_ROUNDS} rounds decide nothing"
        if not self.ratio.decided:
            return "no difference shown"
        return "b is faster" if self.ratio.median > 1 else "b is slower"


@dataclass(frozen=True, slots=True)
class AbReport:
    """Two sides, measured in turns. `plans` is empty where a side's revision can't list its plans."""

    kind: ClassVar[str] = "ab"

    conditions: Conditions
    sides: tuple[SideRecord, ...]
    results: tuple[Compared, ...]
    settings_that_differ: tuple[str, ...]
    plans: tuple[PlanDiff, ...]
    agreement: Agreement

    def markdown(self) -> str:
        """The ratios, every round, and what differs."""
        summary = ["test", "a tok/s", "b tok/s", "b / a", "95 % interval", ""]
        rounds = ["test", "round", "first", "a tok/s", "b tok/s", "b / a"]
        return "\n".join(
            [
                table(summary, [_summary_row(r) for r in self.results]),
                "",
                "Every round:",
                "",
                table(rounds, [_round_row(r, n) for r in self.results for n in r.rounds]),
                "",
                *([] if all(r.refill for r in self.results) else [KEPT_DEPTH]),
                *busy_lines([(r.test, r.others) for r in self.results]),
                *self._differences(),
                f"- tokens: {self.agreement.text()}",
                *(_side_text(side) for side in self.sides),
                *facts(self.conditions),
            ]
        )

    def records(self) -> Sequence[Mapping[str, object]]:
        """One record per round of every test: ratios can be taken again from it."""
        sides = {f"{s.name}_{name}": value for s in self.sides for name, value in s.settings.items()}
        commits = {f"{s.name}_commit": s.source.commit for s in self.sides}
        return [
            {
                "test": r.test,
                "tokens": r.tokens,
                "depth": r.depth,
                "refill": r.refill,
                "round": n.number,
                "first": n.first,
                "a_rate": n.a_rate,
                "b_rate": n.b_rate,
                "ratio": n.ratio,
                "median_ratio": r.ratio.median,
                "ratio_low": r.ratio.low,
                "ratio_high": r.ratio.high,
                "others": r.others,
                "same_tokens": self.agreement.same_tokens,
                "same_bits": self.agreement.same_bits,
                **sides,
                **commits,
                **self.conditions.record(),
            }
            for r in self.results
            for n in r.rounds
        ]

    def _differences(self) -> list[str]:
        a, b = self.sides
        lines = [f"- {name}: a {a.settings.get(name)}, b {b.settings.get(name)}" for name in self.settings_that_differ]
        if a.source != b.source:
            lines.append(f"- source: a {a.source}, b {b.source}")
        if a.fusions != b.fusions:
            lines += [f"- fusions on, side {s.name}: {', '.join(s.fusions) or 'none'}" for s in self.sides]
        if not self.plans:
            lines.append("- plans: a side's revision can't list its plans")
        forwards: dict[tuple[str, ...], list[str]] = {}
        for plan in self.plans:
            forwards.setdefault(tuple(plan.lines()), []).append(plan.forward)
        for (head, *rest), names in forwards.items():
            lines += [f"- plan of {'; '.join(names)}: {head}", *rest]
        return lines


def _summary_row(r: Compared) -> list[str]:
    median, _, interval = ratio_text(r.ratio).partition(" ")
    return [r.test, f"{r.a.median:.2f}", f"{r.b.median:.2f}", median, interval, r.verdict]


def _round_row(r: Compared, n: Round) -> list[str]:
    return [r.test, str(n.number), n.first, f"{n.a_rate:.2f}", f"{n.b_rate:.2f}", f"{n.ratio:.3f}"]


def _side_text(side: SideRecord) -> str:
    revision = "" if side.revision is None else f"{side.revision} = {side.source}; "
    settings = settings_text(side.settings) or "settings that its revision can't list"
    return f"- side {side.name}: {revision}{settings}; loaded in {side.load_seconds:.2f} s"
