"""What is reported of a test: its parts, and the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from minfer_models.bench.roofline.attribution import Attribution, Part
from minfer_models.bench.stats import Ratio, Summary
from minfer_models.bench.workload import Workload


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
    """One test on `threads` threads: `seconds` of every repetition, `timed_seconds` of those with times taken.

    `parts`, `waking_seconds` (threads starting and finishing a program) and `outside_seconds` (Python between the
    programs) add up to `total_seconds`, the median timed one's. `resident_bytes` are its weights and KV cells.
    `of_bandwidth` (decode): those bytes per second over what the threads read at best, round by round.
    `matmul_macs_per_second_per_thread` (prefill): of the matmuls, within their own time.
    """

    test: str
    phase: str
    tokens: int
    depth: int
    threads: int
    seconds: tuple[float, ...]
    timed_seconds: tuple[float, ...]
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
        timed: Sequence[float],
        found: Attribution,
        of_bandwidth: Ratio | None,
    ) -> Self:
        """`found` is of the median repetition in `timed`."""
        parts = sorted((PartResult.of(p, found.total) for p in found.parts), key=lambda p: -p.share)
        products = [p for p in parts if p.op.startswith("matmul")]
        product_seconds = sum(p.seconds + p.waiting_seconds for p in products)
        per_thread = sum(p.macs for p in products) / product_seconds / threads if products else None
        return cls(
            test=test.name,
            phase=test.phase,
            tokens=test.tokens,
            depth=test.depth,
            threads=threads,
            seconds=tuple(seconds),
            timed_seconds=tuple(timed),
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
