"""The result of `minfer-bench MODEL`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.loading import Loaded
from minfer_models.bench.report.markdown import KEPT_DEPTH, MIB, busy_lines, facts, settings_text, table
from minfer_models.bench.rounds import Rounds
from minfer_models.bench.stats import Summary


@dataclass(frozen=True, slots=True)
class Measured:
    """One test: seconds and tokens per second of every repetition. `threads` are the workers it ran on.

    `outside` is the share of the time that wasn't spent in the backends' native programs, the median repetition's.
    `others` are the CPUs that other processes had meanwhile, on average.
    """

    test: str
    phase: str
    tokens: int
    depth: int
    refill: bool
    threads: int
    seconds: tuple[float, ...]
    rates: tuple[float, ...]
    rate: Summary
    outside: float
    others: float | None

    @classmethod
    def of(cls, rounds: Rounds, side: str, threads: int) -> Measured:
        """One side's part of the rounds."""
        test, samples, rates = rounds.workload, rounds.samples[side], rounds.rates(side)
        return cls(
            test=test.name,
            phase=test.phase,
            tokens=test.tokens,
            depth=test.depth,
            refill=test.refill,
            threads=threads,
            seconds=tuple(rounds.seconds(side)),
            rates=tuple(rates),
            rate=Summary.of(rates),
            outside=median(1 - (s.inside or 0.0) / s.seconds for s in samples),
            others=rounds.others,
        )


@dataclass(frozen=True, slots=True)
class Loading:
    """The engine with `threads` workers. `peak_bytes` is the most memory that the process held until its tests ended.

    A process doesn't give everything back: later engines of the same run can show more than the first.
    """

    threads: int
    load: Loaded
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class ThroughputReport:
    """Prefill and decode speed of a model. `settings` are the engine's, as resolved; `sampler` chose the tokens."""

    kind: ClassVar[str] = "throughput"

    conditions: Conditions
    settings: dict[str, object]
    sampler: str
    engines: tuple[Loading, ...]
    results: tuple[Measured, ...]

    def markdown(self) -> str:
        """A table of the tests, with what they were taken on below."""
        headers = ["test", "threads", "median tok/s", "mean", "stddev", "spread", "outside the programs"]
        kept = not all(m.refill for m in self.results)
        return "\n".join(
            [
                table(headers, [_row(m) for m in self.results]),
                "",
                f"- settings: {settings_text(self.settings)}",
                f"- sampler: {self.sampler}",
                *([KEPT_DEPTH] if kept else []),
                *busy_lines([(m.test, m.others) for m in self.results]),
                *(self._engine_text(engine) for engine in self.engines),
                *facts(self.conditions),
            ]
        )

    def records(self) -> Sequence[Mapping[str, object]]:
        """One record per test, the conditions in each."""
        return [self._record(m) for m in self.results]

    def _record(self, m: Measured) -> Mapping[str, object]:
        engine = next(e for e in self.engines if e.threads == m.threads)
        return {
            "test": m.test,
            "tokens": m.tokens,
            "depth": m.depth,
            "refill": m.refill,
            "threads": m.threads,
            **self.settings,
            "sampler": self.sampler,
            "repetitions": m.rate.n,
            "median_rate": m.rate.median,
            "mean_rate": m.rate.mean,
            "stddev_rate": m.rate.stddev,
            "min_rate": m.rate.min,
            "max_rate": m.rate.max,
            "outside": m.outside,
            "others": m.others,
            "load_seconds": engine.load.seconds,
            "load_seconds_per_gb": engine.load.seconds_per_gb,
            "peak_bytes": engine.peak_bytes,
            **self.conditions.record(),
        }

    def _engine_text(self, engine: Loading) -> str:
        size, load = self.conditions.model.bytes, engine.load
        compiled = f", with {_plural(load.compiled, 'kernel')} compiled" if load.compiled else ""
        return (
            f"- {_plural(engine.threads, 'thread')}: loaded in {load.seconds:.2f} s "
            f"({load.seconds_per_gb:.2f} s/GB{compiled}); "
            f"peak memory {engine.peak_bytes / MIB:.0f} MiB ({engine.peak_bytes / size:.2f} x the file)"
        )


def _row(m: Measured) -> list[str]:
    r = m.rate
    numbers = [f"{v:.2f}" for v in (r.median, r.mean, r.stddev, r.spread)]
    return [m.test, str(m.threads), *numbers, f"{100 * m.outside:.1f} %"]


def _plural(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
