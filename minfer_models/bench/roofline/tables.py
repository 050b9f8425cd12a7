"""Headlines and tables of a roofline report in markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from minfer_models.bench.report.markdown import MIB, ratio_text, table
from minfer_models.bench.roofline.ceilings import Bandwidth, Ceilings
from minfer_models.bench.roofline.results import PartResult, PhaseResult
from minfer_models.bench.stats import Summary

GIGA = 1e9


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


def ceilings_table(all_ceilings: Sequence[Ceilings]) -> str:
    """A row per ceiling and thread count."""
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


def phase_table(phase: PhaseResult) -> str:
    """A row per part, a token's worth of a decode; what isn't a part; and the whole."""
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
    ratio = median(t / s for t, s in zip(phase.timed_seconds, phase.seconds, strict=True))
    return f"{table(headers, rows)}\n\nWith times taken a run took {ratio:.3f} x as long as without."


def _part_row(p: PartResult, unit: int) -> list[str]:
    return [
        p.kind, f"{p.calls / unit:.0f}", _ms(p.seconds, unit), _ms(p.waiting_seconds, unit), percent(p.share),
        f"{p.bytes / unit / MIB:.2f}", f"{p.macs / unit / GIGA:.3f}", f"{p.bytes_per_second / GIGA:.1f}",
        f"{p.macs_per_second / GIGA:.1f}", _ms(p.limit_seconds, unit), p.limited_by, percent(p.of_limit),
    ]  # fmt: skip


def _ms(seconds: float, unit: int) -> str:
    return f"{1e3 * seconds / unit:.3f}"
