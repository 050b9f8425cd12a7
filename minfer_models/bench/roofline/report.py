"""The result of `minfer-bench roofline`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.report.markdown import MIB, facts, ratio_text, settings_text, table
from minfer_models.bench.roofline.attribution import Attribution, Part
from minfer_models.bench.roofline.ceilings import Bandwidth, Ceilings
from minfer_models.bench.stats import Ratio, Summary
from minfer_models.bench.workload import Workload

GIGA = 1e9


@dataclass(frozen=True, slots=True)
class PartResult:
    """One kind of node in one run of the test. Seconds are the mean thread's: in kernels, and waiting behind them.

    `bytes` cross memory at least once, `resident_bytes` of them from weights and KV cells. `limit_seconds` is what the
    work needs at the measured ceilings; `limited_by` names the ceiling that most of it is due to.
    """

    kind: str
    op: str
    calls: int
    seconds: float
    waiting_seconds: float
    share: float
    bytes: int
    resident_bytes: int
    macs: float
    bytes_per_second: float
    macs_per_second: float
    limit_seconds: float
    limited_by: str
    of_limit: float

    @classmethod
    def of(cls, part: Part, total: float) -> Self:
        """`total` in seconds."""
        span, macs = part.seconds + part.waiting, part.cost.flops / 2
        return cls(
            kind=part.kind,
            op=part.op,
            calls=part.calls,
            seconds=part.seconds,
            waiting_seconds=part.waiting,
            share=span / total,
            bytes=part.cost.bytes,
            resident_bytes=part.cost.resident,
            macs=macs,
            bytes_per_second=part.cost.bytes / span,
            macs_per_second=macs / span,
            limit_seconds=part.limit,
            limited_by=max(part.limited, key=lambda name: part.limited[name]),
            of_limit=part.limit / span,
        )


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """One test on `threads` threads.

    `parts`, `waking_seconds` (threads starting and finishing a program) and `outside_seconds` (Python between the
    programs) add up to `total_seconds`, the median repetition's. `resident_bytes` are its weights and KV cells.
    `of_bandwidth` (decode): those bytes per second over what the threads read at best, round by round.
    `matmul_macs_per_second_per_thread` (prefill): of the matmuls, within their own time.
    """

    test: str
    phase: str
    tokens: int
    depth: int
    threads: int
    seconds: tuple[float, ...]
    rate: Summary
    total_seconds: float
    waking_seconds: float
    outside_seconds: float
    resident_bytes: int
    limit_seconds: float
    of_bandwidth: Ratio | None
    matmul_macs_per_second_per_thread: float | None
    parts: tuple[PartResult, ...]

    @classmethod
    def of(
        cls,
        test: Workload,
        threads: int,
        seconds: Sequence[float],
        found: Attribution,
        of_bandwidth: Ratio | None,
    ) -> Self:
        """`seconds` of every repetition, `found` of the median one."""
        parts = sorted((PartResult.of(p, found.total) for p in found.parts), key=lambda p: -p.share)
        products = [p for p in parts if p.op == "matmul"]
        product_seconds = sum(p.seconds + p.waiting_seconds for p in products)
        per_thread = sum(p.macs for p in products) / product_seconds / threads if products else None
        return cls(
            test=test.name,
            phase=test.phase,
            tokens=test.tokens,
            depth=test.depth,
            threads=threads,
            seconds=tuple(seconds),
            rate=Summary.of([test.tokens / s for s in seconds]),
            total_seconds=found.total,
            waking_seconds=found.waking,
            outside_seconds=found.outside,
            resident_bytes=sum(p.resident_bytes for p in parts),
            limit_seconds=sum(p.limit_seconds for p in parts),
            of_bandwidth=of_bandwidth,
            matmul_macs_per_second_per_thread=per_thread if test.phase == "pp" else None,
            parts=tuple(parts),
        )

    @property
    def title(self) -> str:
        """The test and its threads."""
        return f"{self.test}, {self.threads} thread{'s' if self.threads > 1 else ''}"


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
            _ceilings_table(self.ceilings),
            *(_phase_block(phase) for phase in self.phases),
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
        rows: list[dict[str, object]] = [_part_record(part) for part in phase.parts]
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


def headlines(phase: PhaseResult, ceilings: Ceilings) -> list[str]:
    """What matters most about a phase, a sentence each."""
    speed = f"{phase.title}: {phase.rate.median:.1f} tokens/s"
    if phase.of_bandwidth is not None:
        per_token = phase.resident_bytes / phase.tokens
        reached = phase.rate.median * per_token
        return [
            f"{speed} x {per_token / MIB:.1f} MiB of weights and KV cells a token = {reached / GIGA:.1f} GB/s, "
            f"{percent(phase.of_bandwidth.median)} of the {ceilings.weights.rate.median / GIGA:.1f} GB/s that a plain "
            f"loop reads (ratio {ratio_text(phase.of_bandwidth)})"
        ]
    rate = phase.matmul_macs_per_second_per_thread
    if rate is None:
        return [speed]
    share = rate * phase.threads / ceilings.int8.rate.median
    return [
        f"{speed}; matmuls at {rate / GIGA:.1f} GMAC/s per thread, {percent(share)} of the "
        f"{ceilings.int8.rate.median / phase.threads / GIGA:.0f} GMAC/s that int8 multiply-adds reach from registers"
    ]


def percent(share: float) -> str:
    """`12.3 %`"""
    return f"{100 * share:.1f} %"


def _ceilings_table(all_ceilings: Sequence[Ceilings]) -> str:
    rows: list[list[str]] = []
    for c in all_ceilings:
        sweeps = {"read, as much as a token": c.weights, "read, more than any cache": c.large}
        sweeps |= {f"read, the buffers of {test}": b for test, b in c.values.items()}
        rows += [_bandwidth_row(name, c.threads, b) for name, b in sweeps.items()]
        rows += [
            [f"{name} multiply-adds ({p.instruction})", str(c.threads), *_rates(p.rate, "GMAC/s")]
            for name, p in (("int8", c.int8), ("f32", c.f32))
        ]
    return table(["ceiling", "threads", "median", "best", "worst"], rows)


def _bandwidth_row(name: str, threads: int, found: Bandwidth) -> list[str]:
    return [f"{name} ({_size(found.bytes)})", str(threads), *_rates(found.rate, "GB/s")]


def _rates(rate: Summary, unit: str) -> list[str]:
    return [f"{v / GIGA:.1f} {unit}" for v in (rate.median, rate.max, rate.min)]


def _size(n: int) -> str:
    return f"{n / MIB:.0f} MiB" if n >= 10 * MIB else f"{n / 1024:.0f} KiB"


def _phase_block(phase: PhaseResult) -> str:
    unit = phase.tokens if phase.phase == "tg" else 1
    what = "a token" if phase.phase == "tg" else "a run"
    headers = [
        phase.title, "calls", "ms", "wait ms", "share", "MiB", "GMAC", "GB/s", "GMAC/s", "limit ms", "by",
        "of limit",
    ]  # fmt: skip
    rows = [_part_row(part, unit) for part in phase.parts]
    rest = {"threads wake and finish": phase.waking_seconds, "outside the program": phase.outside_seconds}
    rows += [[name, "", _ms(s, unit), "", percent(s / phase.total_seconds), *[""] * 7] for name, s in rest.items()]
    spans = sum(p.seconds for p in phase.parts), sum(p.waiting_seconds for p in phase.parts)
    total = phase.total_seconds
    rows.append(
        [f"all of {what}", "", _ms(spans[0] + phase.waking_seconds + phase.outside_seconds, unit), _ms(spans[1], unit),
         "100.0 %", f"{sum(p.bytes for p in phase.parts) / unit / MIB:.2f}",
         f"{sum(p.macs for p in phase.parts) / unit / GIGA:.3f}", "", "", _ms(phase.limit_seconds, unit), "",
         percent(phase.limit_seconds / total)]
    )  # fmt: skip
    return table(headers, rows)


def _part_row(p: PartResult, unit: int) -> list[str]:
    return [
        p.kind, f"{p.calls / unit:.0f}", _ms(p.seconds, unit), _ms(p.waiting_seconds, unit), percent(p.share),
        f"{p.bytes / unit / MIB:.2f}", f"{p.macs / unit / GIGA:.3f}", f"{p.bytes_per_second / GIGA:.1f}",
        f"{p.macs_per_second / GIGA:.1f}", _ms(p.limit_seconds, unit), p.limited_by, percent(p.of_limit),
    ]  # fmt: skip


def _ms(seconds: float, unit: int) -> str:
    return f"{1e3 * seconds / unit:.3f}"


def _part_record(p: PartResult) -> dict[str, object]:
    return {
        "kind": p.kind,
        "op": p.op,
        "calls": p.calls,
        "seconds": p.seconds,
        "waiting_seconds": p.waiting_seconds,
        "share": p.share,
        "bytes": p.bytes,
        "resident_bytes": p.resident_bytes,
        "macs": p.macs,
        "bytes_per_second": p.bytes_per_second,
        "macs_per_second": p.macs_per_second,
        "limit_seconds": p.limit_seconds,
        "limited_by": p.limited_by,
        "of_limit": p.of_limit,
    }
