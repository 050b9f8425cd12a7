"""The result of `minfer-bench peer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.peer.divergence import Divergence
from minfer_models.bench.report.markdown import KEPT_DEPTH, facts, ratio_text, settings_text, table
from minfer_models.bench.rounds import Rounds
from minfer_models.bench.stats import Ratio, Summary, matched_ratio


@dataclass(frozen=True, slots=True)
class PeerRecord:
    """The other engine: what it says about itself and its settings, as it runs them."""

    name: str
    about: dict[str, object]
    settings: dict[str, object]
    load_seconds: float


@dataclass(frozen=True, slots=True)
class PeerRound:
    """One round: which side ran first, tokens per second of both, and ours over the peer's."""

    number: int
    first: str
    ours_rate: float
    peer_rate: float
    ratio: float


@dataclass(frozen=True, slots=True)
class PeerCompared:
    """One test on both engines. `ratio` is of our rate over the peer's: above 1, ours is faster."""

    test: str
    phase: str
    tokens: int
    depth: int
    refill: bool
    rounds: tuple[PeerRound, ...]
    ours: Summary
    peer: Summary
    ratio: Ratio

    @classmethod
    def of(cls, rounds: Rounds, ours: str, peer: str) -> PeerCompared:
        """The test's rounds, summarized."""
        test, a, b = rounds.workload, rounds.rates(ours), rounds.rates(peer)
        return cls(
            test=test.name,
            phase=test.phase,
            tokens=test.tokens,
            depth=test.depth,
            refill=test.refill,
            rounds=tuple(
                PeerRound(i + 1, rounds.first[i], x, y, x / y) for i, (x, y) in enumerate(zip(a, b, strict=True))
            ),
            ours=Summary.of(a),
            peer=Summary.of(b),
            ratio=matched_ratio(a, b),
        )


@dataclass(frozen=True, slots=True)
class Ratios:
    """The median ratios of our speed over the peer's, None for what wasn't measured."""

    pp: float | None
    tg: float | None

    @classmethod
    def of(cls, results: Sequence[PeerCompared]) -> Ratios:
        """Of one prefill test and one decode test."""
        found = {r.phase: r.ratio.median for r in results}
        return cls(found.get("pp"), found.get("tg"))


@dataclass(frozen=True, slots=True)
class Answers:
    """KL(peer || ours) over the text; with a float reference, KL(reference || ours) and KL(reference || peer)."""

    between: Divergence
    ours_from_reference: Divergence | None
    peer_from_reference: Divergence | None

    def lines(self, peer: str) -> list[str]:
        """As lines of a list."""
        named = (
            (f"KL({peer} || minfer)", self.between),
            ("KL(float reference || minfer)", self.ours_from_reference),
            (f"KL(float reference || {peer})", self.peer_from_reference),
        )
        return [f"- {name}: {_kl_text(d)}" for name, d in named if d is not None]


class WatchedRuns(Protocol):
    """What a watched side knows of its runs."""

    waiting: list[float]
    others: list[float]
    repeated: int


@dataclass(frozen=True, slots=True)
class Quiet:
    """How undisturbed the runs were: the most CPU time, as a share of a run's seconds, that others took in one.

    `waiting` is the side that waited, `others` everything else on the machine. `repeated` runs were taken again because
    others took too much.
    """

    waiting: float
    others: float
    repeated: int

    @classmethod
    def of(cls, sides: Sequence[WatchedRuns]) -> Quiet | None:
        """Of all runs of the sides; None where the system doesn't say."""
        if not all(side.waiting for side in sides):
            return None
        waiting = max(max(side.waiting) for side in sides)
        return cls(waiting, max(max(side.others) for side in sides), sum(side.repeated for side in sides))

    def text(self) -> str:
        """As a line of a list."""
        return (
            f"CPU time during a run: the waiting side at most {100 * self.waiting:.1f} % of it, all others "
            f"{100 * self.others:.1f} %; {self.repeated} disturbed runs taken again"
        )


@dataclass(frozen=True, slots=True)
class PeerReport:
    """Our engine and another one, measured in turns. `kl` is of the peer's answers from ours.

    `notes` say what isn't as it was asked for. `quiet` is None where the system doesn't say.
    """

    kind: ClassVar[str] = "peer"

    conditions: Conditions
    settings: dict[str, object]
    load_seconds: float
    peer: PeerRecord
    results: tuple[PeerCompared, ...]
    ratios: Ratios
    kl: Divergence
    answers: Answers
    quiet: Quiet | None
    notes: tuple[str, ...]

    def markdown(self) -> str:
        """The ratios, every round, the distance of the answers."""
        peer = self.peer.name
        summary = ["test", "minfer tok/s", f"{peer} tok/s", "ratio", "95 % interval"]
        rounds = ["test", "round", "first", "minfer tok/s", f"{peer} tok/s", "ratio"]
        return "\n".join(
            [
                table(summary, [_summary_row(r) for r in self.results]),
                "",
                "Every round:",
                "",
                table(rounds, [_round_row(r, n) for r in self.results for n in r.rounds]),
                "",
                *(f"- note: {note}" for note in self.notes),
                *([] if all(r.refill for r in self.results) else [KEPT_DEPTH]),
                *self.answers.lines(peer),
                f"- minfer: {settings_text(self.settings)}; loaded in {self.load_seconds:.2f} s",
                f"- {peer} {self.peer.about.get('version', '')}: {settings_text(self.peer.settings)}; "
                f"loaded in {self.peer.load_seconds:.2f} s",
                f"- {peer} has: {self.peer.about.get('system', 'unknown')}",
                "- " + ("CPU time of others: unknown here" if self.quiet is None else self.quiet.text()),
                *facts(self.conditions),
            ]
        )

    def records(self) -> Sequence[Mapping[str, object]]:
        """One record per round of every test."""
        return [
            {
                "peer": self.peer.name,
                "peer_version": self.peer.about.get("version"),
                "test": r.test,
                "tokens": r.tokens,
                "depth": r.depth,
                "refill": r.refill,
                "round": n.number,
                "first": n.first,
                "ours_rate": n.ours_rate,
                "peer_rate": n.peer_rate,
                "ratio": n.ratio,
                "median_ratio": r.ratio.median,
                "ratio_low": r.ratio.low,
                "ratio_high": r.ratio.high,
                "kl_mean": self.kl.mean,
                "kl_p99": self.kl.p99,
                "same_top1": self.kl.same_top1,
                **self.settings,
                **{f"peer_{name}": value for name, value in self.peer.settings.items()},
                **self.conditions.record(),
            }
            for r in self.results
            for n in r.rounds
        ]


def _summary_row(r: PeerCompared) -> list[str]:
    median, _, interval = ratio_text(r.ratio).partition(" ")
    return [r.test, f"{r.ours.median:.2f}", f"{r.peer.median:.2f}", median, interval]


def _round_row(r: PeerCompared, n: PeerRound) -> list[str]:
    return [r.test, str(n.number), n.first, f"{n.ours_rate:.2f}", f"{n.peer_rate:.2f}", f"{n.ratio:.3f}"]


def _kl_text(d: Divergence) -> str:
    return (
        f"mean {d.mean:.2e}, p99 {d.p99:.2e}, max {d.max:.2e} nats over {d.tokens} tokens; "
        f"the same likeliest token at {100 * d.same_top1:.1f} %"
    )
