"""The result of `minfer-bench roofline` for a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import ClassVar, Self

from minfer_models.bench.conditions import Conditions
from minfer_models.bench.report.markdown import MIB, facts, settings_text, table
from minfer_models.bench.roofline.attribution import Attribution
from minfer_models.bench.roofline.device.limits import DeviceCeilings, Rate
from minfer_models.bench.roofline.results import PartResult
from minfer_models.bench.roofline.tables import GIGA, percent
from minfer_models.bench.stats import Summary
from minfer_models.bench.workload import Workload

INTERPRETED = "Triton's interpreter ran the kernels on the CPU: these times say nothing about a GPU"


@dataclass(frozen=True, slots=True)
class DevicePhase:
    """One test on the device: `seconds` of every repetition, `timed_seconds` of those with times taken.

    `parts` and `outside_seconds` (the host, before the device begins and behind it) add up to `total_seconds`, the
    median timed one's without its wait for launches. `resident_bytes` are its weights and KV cells. `of_bandwidth`
    (decode): those bytes per second, by `seconds`, over the bandwidth that limits.
    """

    test: str
    phase: str
    tokens: int
    depth: int
    seconds: tuple[float, ...]
    timed_seconds: tuple[float, ...]
    rate: Summary
    total_seconds: float
    outside_seconds: float
    resident_bytes: int
    limit_seconds: float
    of_bandwidth: float | None
    of_float16: float | None
    parts: tuple[PartResult, ...]

    @classmethod
    def of(
        cls,
        test: Workload,
        seconds: Sequence[float],
        timed: Sequence[float],
        found: Attribution,
        ceilings: DeviceCeilings,
    ) -> Self:
        """`found` is of the median repetition in `timed`."""
        parts = sorted((PartResult.of(p, found.total) for p in found.parts), key=lambda p: -p.share)
        resident = sum(p.resident_bytes for p in parts)
        macs = sum(p.macs for p in parts)
        decode = test.phase == "tg"
        return cls(
            test=test.name,
            phase=test.phase,
            tokens=test.tokens,
            depth=test.depth,
            seconds=tuple(seconds),
            timed_seconds=tuple(timed),
            rate=Summary.of([test.tokens / s for s in seconds]),
            total_seconds=found.total,
            outside_seconds=found.outside,
            resident_bytes=resident,
            limit_seconds=sum(p.limit_seconds for p in parts),
            of_bandwidth=resident / median(seconds) / ceilings.memory.limit if decode else None,
            of_float16=None if decode else macs / median(seconds) / ceilings.float16.limit,
            parts=tuple(parts),
        )


@dataclass(frozen=True, slots=True)
class DeviceRooflineReport:
    """Where the time goes on a GPU, against what it can do. `interpreted`: no GPU was there, and times mean nothing."""

    kind: ClassVar[str] = "roofline-device"

    conditions: Conditions
    settings: dict[str, object]
    device: str
    interpreted: bool
    ceilings: DeviceCeilings
    phases: tuple[DevicePhase, ...]

    def markdown(self) -> str:
        """Headlines, ceilings, and a table per test."""
        notes = [f"- NOTE: {INTERPRETED}"] if self.interpreted else []
        ceilings = {"memory, copied (GB/s)": self.ceilings.memory, "float16 (GMAC/s)": self.ceilings.float16}
        blocks = [
            "\n".join([*notes, *(f"- {_headline(phase)}" for phase in self.phases)]),
            table(
                ["ceiling", "median", "best", "worst", "data sheet", "limit"],
                [_rate_row(name, rate) for name, rate in ceilings.items()],
            ),
            *(_phase_table(phase) for phase in self.phases),
            "\n".join(
                [f"- device: {self.device}", f"- settings: {settings_text(self.settings)}", *facts(self.conditions)]
            ),
        ]
        return "\n\n".join(blocks)

    def records(self) -> Sequence[Mapping[str, object]]:
        """One record per part of every test, the rest of the time as a part of its own."""
        return [record for phase in self.phases for record in self._records(phase)]

    def _records(self, phase: DevicePhase) -> list[Mapping[str, object]]:
        rows: list[dict[str, object]] = [asdict(part) for part in phase.parts]
        outside = {"kind": "outside", "seconds": phase.outside_seconds}
        rows.append({**dict.fromkeys(rows[0], None), **outside, "share": phase.outside_seconds / phase.total_seconds})
        head = {"test": phase.test, "tokens": phase.tokens, "depth": phase.depth, "device": self.device}
        whole = {
            "interpreted": self.interpreted,
            "total_seconds": phase.total_seconds,
            "median_rate": phase.rate.median,
            "of_bandwidth": phase.of_bandwidth,
            "of_float16": phase.of_float16,
            "copy_bandwidth": self.ceilings.memory.measured.median,
            "datasheet_bandwidth": self.ceilings.memory.datasheet,
            "float16_macs_per_second": self.ceilings.float16.measured.median,
            "datasheet_float16_macs_per_second": self.ceilings.float16.datasheet,
        }
        return [{**head, **row, **whole, **self.settings, **self.conditions.record()} for row in rows]


def _headline(phase: DevicePhase) -> str:
    speed = f"{phase.test}: {phase.rate.median:.1f} tokens/s"
    if phase.of_bandwidth is not None:
        size = phase.resident_bytes / phase.tokens / MIB
        reached = f"{percent(phase.of_bandwidth)} of the memory's limit"
        return f"{speed} x {size:.1f} MiB of weights and KV cells a token, {reached}"
    assert phase.of_float16 is not None
    return f"{speed}, {percent(phase.of_float16)} of the float16 limit"


def _rate_row(name: str, rate: Rate) -> list[str]:
    measured = (rate.measured.median, rate.measured.max, rate.measured.min)
    sheet = "unknown" if rate.datasheet is None else f"{rate.datasheet / GIGA:.1f}"
    return [name, *(f"{v / GIGA:.1f}" for v in measured), sheet, f"{rate.limit / GIGA:.1f}"]


def _phase_table(phase: DevicePhase) -> str:
    unit = phase.tokens if phase.phase == "tg" else 1
    headers = [phase.test, "launches", "ms", "share", "MiB", "GMAC", "GB/s", "GMAC/s", "limit ms", "by", "of limit"]
    rows = [
        [
            p.kind, f"{p.calls / unit:.0f}", _ms(p.seconds, unit), percent(p.share), f"{p.bytes / unit / MIB:.2f}",
            f"{p.macs / unit / GIGA:.3f}", f"{p.bytes_per_second / GIGA:.1f}", f"{p.macs_per_second / GIGA:.1f}",
            _ms(p.limit_seconds, unit), p.limited_by, percent(p.of_limit),
        ]
        for p in phase.parts
    ]  # fmt: skip
    total = phase.total_seconds
    outside = [_ms(phase.outside_seconds, unit), percent(phase.outside_seconds / total)]
    rows.append(["outside the device", "", *outside, *[""] * 7])
    what = "a token" if phase.phase == "tg" else "a run"
    calls, nbytes, macs = (sum(getattr(p, name) for p in phase.parts) for name in ("calls", "bytes", "macs"))
    rows.append(
        [
            f"all of {what}", f"{calls / unit:.0f}", _ms(total, unit), "100.0 %", f"{nbytes / unit / MIB:.2f}",
            f"{macs / unit / GIGA:.3f}", "", "", _ms(phase.limit_seconds, unit), "",
            percent(phase.limit_seconds / total),
        ]
    )  # fmt: skip
    ratio = total / median(phase.seconds)
    return f"{table(headers, rows)}\n\nLaunch by launch, with times taken, a run took {ratio:.3f} x as long as without."


def _ms(seconds: float, unit: int) -> str:
    return f"{1e3 * seconds / unit:.3f}"
