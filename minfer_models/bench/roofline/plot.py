"""The picture: a roofline per thread count, and below a bar per phase that shows where its time went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from minfer_models.bench.roofline.ceilings import Ceilings
from minfer_models.bench.roofline.report import RooflineReport
from minfer_models.bench.roofline.results import PartResult, PhaseResult
from minfer_models.bench.roofline.svg import Drawing
from minfer_models.bench.roofline.tables import GIGA, percent

WIDTH, MARGIN = 1120.0, 24.0
PANEL_HEIGHT, BAR_HEIGHT, BAR_STEP = 400.0, 26.0, 66.0
HEAD = 56.0
LEAST_SHARE = 0.005
"""Kinds below this share of the time are no points, and share a segment in the bars."""
LABELLED_SHARE = 0.03
INK, GREY, FAINT, WAIT, WAKE, OUTSIDE = "#222222", "#777777", "#dddddd", "#c9c9c9", "#a3a3a3", "#6f6f6f"
DARK = 140
"""Luma below which text on a colour is white."""
COLORS = {"matmul": "#2f6fb0", "attention": "#d9772b", "other": "#3f9a61"}
DARKEST, LIGHTEST = (0x1B, 0x45, 0x70), (0xC4, 0xDC, 0xF2)
OTHERS = ("#3f9a61", "#74b98c", "#a8d5b6", "#8a6fb0", "#b59fd0", "#c9b458")


@dataclass(frozen=True, slots=True)
class _Frame:
    """Logarithmic axes within a rectangle: x in multiply-adds per byte, y in multiply-adds per second."""

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, intensity: float) -> float:
        return self.left + self.width * _fraction(intensity, self.x_range)

    def y(self, rate: float) -> float:
        return self.top + self.height * (1 - _fraction(rate, self.y_range))


def plotted(report: RooflineReport) -> str:
    """The SVG file."""
    n, bars = len(report.ceilings), len(report.phases)
    legend = 96.0
    height = HEAD + n_rows(n) * (PANEL_HEIGHT + 40) + bars * BAR_STEP + legend
    title = f"{report.conditions.model.name}: where the time goes"
    drawing = Drawing(WIDTH, height, title)
    drawing.text(MARGIN, 28, title, 18)
    drawing.text(
        MARGIN,
        46,
        f"{report.conditions.machine.cpu}, {report.conditions.date}, {report.conditions.command}",
        10,
        "#666",
    )
    width = (WIDTH - MARGIN * 2) / min(n, 2)
    ranges = _ranges(report)
    for index, ceilings in enumerate(report.ceilings):
        left, top = MARGIN + width * (index % 2), HEAD + (PANEL_HEIGHT + 40) * (index // 2)
        phases = [p for p in report.phases if p.threads == ceilings.threads]
        _panel(drawing, _Frame(left + 52, top + 24, width - 76, PANEL_HEIGHT - 64, *ranges), ceilings, phases)
    top = HEAD + n_rows(n) * (PANEL_HEIGHT + 40)
    colors = _kind_colors(report.phases)
    for index, phase in enumerate(report.phases):
        _bar(drawing, top + index * BAR_STEP, phase, colors)
    _legend(drawing, top + bars * BAR_STEP + 4, colors)
    return drawing.file()


def n_rows(panels: int) -> int:
    """Rows of two panels."""
    return -(-panels // 2)


def _panel(drawing: Drawing, frame: _Frame, ceilings: Ceilings, phases: Sequence[PhaseResult]) -> None:
    threads = f"{ceilings.threads} thread{'s' if ceilings.threads > 1 else ''}"
    drawing.text(frame.left, frame.top - 10, threads, 14)
    _axes(drawing, frame)
    _roofs(drawing, frame, ceilings)
    for phase, part in _points(phases):
        x, y = _place(frame, part)
        color = COLORS[_pool_of(part.op)]
        fill = color if phase.phase == "pp" else "#fff"
        drawing.circle(x, y, 3 + 22 * math.sqrt(part.share), fill, color, _tip(phase, part))
    right, taken = frame.left + frame.width, []
    for name, peak, color in (("int8", ceilings.int8, INK), ("f32", ceilings.f32, GREY)):
        words, y = f"{name} {peak.rate.median / GIGA:.0f} GMAC/s", frame.y(peak.rate.median) - 5
        drawing.text(right - 2, y, words, 11, color, "end", halo=True)
        taken.append((right - 2 - 6.0 * len(words), right, y))
    _labels(drawing, frame, [_label(frame, phase, op) for phase in phases for op in _ops(phase)], taken)


def _ranges(report: RooflineReport) -> tuple[tuple[float, float], tuple[float, float]]:
    """Axes that hold all points and ceilings, the same for every panel."""
    parts = [part for phase in report.phases for _, part in _points([phase])]
    intensities = [part.macs / part.bytes for part in parts] or [1.0]
    rates = [part.macs_per_second for part in parts] or [GIGA]
    roofs = [peak.rate.median for c in report.ceilings for peak in (c.int8, c.f32)]
    ridges = [c.int8.rate.median / c.weights.rate.median for c in report.ceilings]
    x_range = (min(intensities) / 2, max(*intensities, *ridges) * 3)
    return x_range, (min(rates) / 3, max(*rates, *roofs) * 2)


def _points(phases: Sequence[PhaseResult]) -> list[tuple[PhaseResult, PartResult]]:
    """What is drawn: parts that multiply and take a visible share, largest first."""
    drawn = [(phase, part) for phase in phases for part in phase.parts if part.macs and part.share >= LEAST_SHARE]
    return sorted(drawn, key=lambda point: -point[1].share)


def _axes(drawing: Drawing, frame: _Frame) -> None:
    bottom, right = frame.top + frame.height, frame.left + frame.width
    for exponent in _exponents(frame.x_range):
        x = frame.x(10.0**exponent)
        drawing.line((x, frame.top), (x, bottom), FAINT)
        drawing.text(x, bottom + 15, f"{10.0**exponent:g}", 11, INK, "middle")
    for exponent in _exponents(frame.y_range):
        y = frame.y(10.0**exponent)
        drawing.line((frame.left, y), (right, y), FAINT)
        drawing.text(frame.left - 6, y + 4, f"{10.0 ** (exponent - 9):g}", 11, INK, "end")
    drawing.text((frame.left + right) / 2, bottom + 32, "multiply-adds per byte", 12, INK, "middle")
    middle = frame.top + frame.height / 2
    drawing.text(frame.left - 40, middle, "GMAC/s", 12, INK, "middle", -90)


def _roofs(drawing: Drawing, frame: _Frame, c: Ceilings) -> None:
    int8, f32, memory = c.int8.rate.median, c.f32.rate.median, c.weights.rate.median
    right = frame.left + frame.width
    for roof, color in ((int8, INK), (f32, GREY)):
        start = max(roof / memory, frame.x_range[0])
        drawing.line((frame.x(start), frame.y(roof)), (right, frame.y(roof)), color, 1.5)
    low = max(frame.x_range[0], frame.y_range[0] / memory)
    drawing.line((frame.x(low), frame.y(low * memory)), (frame.x(int8 / memory), frame.y(int8)), INK, 1.5)
    # Along the slope, a little above it.
    slope = frame.height / _span(frame.y_range) / (frame.width / _span(frame.x_range))
    at = low * 1.15
    drawing.text(
        frame.x(at) - 3, frame.y(at * memory) - 6, f"memory {memory / GIGA:.1f} GB/s", 11, INK, "start",
        -math.degrees(math.atan(slope)),
    )  # fmt: skip


def _place(frame: _Frame, part: PartResult) -> tuple[float, float]:
    return frame.x(part.macs / part.bytes), frame.y(part.macs_per_second)


def _tip(phase: PhaseResult, part: PartResult) -> str:
    rates = f"{part.macs_per_second / GIGA:.1f} GMAC/s, {part.bytes_per_second / GIGA:.1f} GB/s"
    shares = f"{percent(part.share)} of the time, {percent(part.of_limit)} of the {part.limited_by} limit"
    return f"{phase.test} {part.kind}: {rates}, {shares}"


def _ops(phase: PhaseResult) -> list[str]:
    """The ops worth a label, all products as one: points of one op lie close together."""
    shares: dict[str, float] = {}
    for part in phase.parts:
        if part.macs:
            shares[_label_of(part.op)] = shares.get(_label_of(part.op), 0.0) + part.share
    return [op for op, share in shares.items() if share >= LABELLED_SHARE]


def _label(frame: _Frame, phase: PhaseResult, op: str) -> tuple[float, float, str]:
    """Right of the op's rightmost point, at the height of its largest."""
    parts = [p for p in phase.parts if _label_of(p.op) == op and p.macs and p.share >= LEAST_SHARE]
    right = max(_place(frame, p)[0] + 22 * math.sqrt(p.share) for p in parts)
    return right, _place(frame, max(parts, key=lambda p: p.share))[1], f"{phase.test} {op}"


def _labels(
    drawing: Drawing,
    frame: _Frame,
    labels: Sequence[tuple[float, float, str]],
    taken: list[tuple[float, float, float]],
) -> None:
    """Beside the points (left of the frame's edge), moved down where they would lie on each other or what is `taken`.

    `taken` are left and right ends and the line of words that are there.
    """
    for x, y, words in sorted(labels, key=lambda label: label[1]):
        length = 6.0 * len(words)
        start, line = min(x + 6, frame.left + frame.width - length), y + 4
        if start < x:
            line += 22
        while any(abs(line - other) < 13 and start < end and begin < start + length for begin, end, other in taken):
            line += 1
        taken.append((start, start + length, line))
        drawing.text(start, line, words, 11, halo=True)


def _bar(drawing: Drawing, top: float, phase: PhaseResult, colors: dict[str, str]) -> None:
    width, left = WIDTH - 2 * MARGIN, MARGIN
    unit = phase.tokens if phase.phase == "tg" else 1
    note = "a token" if phase.phase == "tg" else "a run"
    shown = f"{phase.title}: {1e3 * phase.total_seconds / unit:.2f} ms {note}, {phase.rate.median:.1f} tokens/s"
    drawing.text(left, top + 12, shown, 13)
    for name, seconds, color in _segments(phase, colors):
        share = seconds / phase.total_seconds
        drawing.rect(left, top + 18, width * share, BAR_HEIGHT, color, f"{name}: {percent(share)}")
        words = f"{_brief(name)} {100 * share:.0f} %"
        if width * share > 6.4 * len(words):
            ink = "#fff" if _luma(color) < DARK else INK
            drawing.text(left + width * share / 2, top + 18 + BAR_HEIGHT / 2 + 4, words, 11, ink, "middle")
        left += width * share


def _segments(phase: PhaseResult, colors: dict[str, str]) -> list[tuple[str, float, str]]:
    """Name, seconds and colour of the bar's pieces: kernels, then what isn't kernels."""
    kinds = [(p.kind, p.seconds, colors[p.kind]) for p in phase.parts if p.kind in colors]
    rest = sum(p.seconds for p in phase.parts if p.kind not in colors)
    waiting = sum(p.waiting_seconds for p in phase.parts)
    between = "waiting for other threads" if phase.threads > 1 else "between instructions"
    return [
        *kinds,
        ("other kernels", rest, FAINT),
        (between, waiting, WAIT),
        ("threads wake and finish", phase.waking_seconds, WAKE),
        ("outside the program", phase.outside_seconds, OUTSIDE),
    ]


def _kind_colors(phases: Sequence[PhaseResult]) -> dict[str, str]:
    """A colour for every kind that takes a visible share of some phase: matmuls blue, attention orange."""
    shares: dict[str, tuple[float, str]] = {}
    for part in (part for phase in phases for part in phase.parts):
        shares[part.kind] = max(shares.get(part.kind, (0.0, part.op)), (part.share, part.op))
    kinds = [(kind, op) for kind, (share, op) in sorted(shares.items(), key=lambda s: -s[1][0]) if share >= LEAST_SHARE]
    pools = {
        "matmul": iter(_shades(sum(op.startswith("matmul") for _, op in kinds))),
        "attention": iter([COLORS["attention"]]),
        "other": iter(OTHERS),
    }
    drawn = {kind: next(pools[_pool_of(op)], None) for kind, op in kinds}
    return {kind: color for kind, color in drawn.items() if color is not None}


def _pool_of(op: str) -> str:
    return "matmul" if op.startswith("matmul") else "attention" if op == "attention" else "other"


def _label_of(op: str) -> str:
    return "matmul" if op.startswith("matmul") else op


def _legend(drawing: Drawing, top: float, colors: dict[str, str]) -> None:
    x, y = MARGIN, top + 8
    named = {**colors, "other kernels": FAINT, "waiting": WAIT, "wake and finish": WAKE, "outside the program": OUTSIDE}
    for kind, color in named.items():
        length = 24 + 6.3 * len(kind)
        if x + length > WIDTH - MARGIN:
            x, y = MARGIN, y + 20
        drawing.rect(x, y - 10, 12, 12, color)
        drawing.text(x + 16, y, kind, 11)
        x += length + 12
    drawing.text(
        MARGIN,
        y + 24,
        "Points: filled for prefill, open for decode; their area is the share of the phase's time.",
        11,
        "#666",
    )


def _short(kind: str) -> str:
    """A kind without the op's name where the value's says enough."""
    op, _, rest = kind.partition(" ")
    return rest if rest and op.startswith("matmul") else kind


def _brief(kind: str) -> str:
    """The same for narrow places: `attn_q+attn_k+attn_v` is `attn_q+k+v`."""
    head, *rest = _short(kind).split("+")
    prefix = head[: head.find("_") + 1]
    return "+".join([head, *(name.removeprefix(prefix) for name in rest)])


def _shades(n: int) -> list[str]:
    """`n` blues, dark to light."""
    mixed = [[d + (b - d) * i / max(n - 1, 1) for d, b in zip(DARKEST, LIGHTEST, strict=True)] for i in range(n)]
    return ["#" + "".join(f"{round(c):02x}" for c in rgb) for rgb in mixed]


def _luma(color: str) -> float:
    """How bright `#rrggbb` is, 0 to 255 (Rec. 601)."""
    r, g, b = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * r + 0.587 * g + 0.114 * b


def _span(bounds: tuple[float, float]) -> float:
    return math.log10(bounds[1] / bounds[0])


def _fraction(value: float, bounds: tuple[float, float]) -> float:
    return math.log10(value / bounds[0]) / _span(bounds)


def _exponents(bounds: tuple[float, float]) -> range:
    """The powers of ten within."""
    return range(math.ceil(math.log10(bounds[0])), math.floor(math.log10(bounds[1])) + 1)
