"""docs/speed.svg: the ratios of docs/performance.md's first table against llama.cpp, as bars."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import dropwhile, takewhile
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
HEADING = "Two threads, llama.cpp as it builds for this CPU"
"""How the paragraph over the table begins."""

LABELS, UNIT, ROW, BAR, TOP = 176, 66, 36, 12, 66
"""Pixels: the column of names, a ratio of 1, a model, a bar, what stands above the bars."""
INK, PAPER, EDGE, DECODE, PREFILL = "#1f2933", "#f4f6f8", "#52606d", "#2f6db3", "#8fb6dd"


@dataclass(frozen=True, slots=True)
class Ratio:
    """minfer's tokens per second over llama.cpp's, for one model."""

    model: str
    decode: float
    prefill: float


def ratios(page: str) -> list[Ratio]:
    """The rows of the table; raises ValueError when the page has none below its heading."""
    below = dropwhile(lambda line: not line.startswith(HEADING), page.splitlines())
    table = list(takewhile(lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("|"), below)))
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table[2:]]
    if not rows:
        raise ValueError(f"{PAGE}: no table below {HEADING!r}")
    return [Ratio(cells[0], float(cells[3]), float(cells[7])) for cells in rows]


def picture() -> str:
    """The SVG: two bars a model, and a line where both engines are equally fast."""
    rows = ratios(PAGE.read_text(encoding="utf-8"))
    widest = max(max(row.decode, row.prefill) for row in rows)
    width, bottom = round(LABELS + UNIT * widest + 60), TOP + ROW * len(rows)
    height = bottom + 16
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" fill="{INK}">'
    )
    ground = f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>'
    bars = [_model(row, TOP + ROW * i) for i, row in enumerate(rows)]
    return "\n".join([head, ground, *_title(), *bars, _even(bottom), "</svg>"]) + "\n"


def _title() -> list[str]:
    keys = ((DECODE, "decode, tg128"), (PREFILL, "prefill, pp512"))
    boxes = [
        f'<rect x="{LABELS + 140 * i}" y="38" width="{BAR}" height="{BAR}" fill="{color}"/>'
        f'<text x="{LABELS + 140 * i + 18}" y="48" font-size="12">{name}</text>'
        for i, (color, name) in enumerate(keys)
    ]
    x = LABELS + 140 * len(keys)
    even = f'<path d="M{x} 44h{2 * BAR}" stroke="{INK}" stroke-dasharray="4 3"/>'
    even += f'<text x="{x + 2 * BAR + 6}" y="48" font-size="12">as fast as llama.cpp</text>'
    title = "Tokens per second of minfer over those of llama.cpp, same file, two threads"
    return [f'<text x="16" y="24" font-size="14" font-weight="600">{title}</text>', *boxes, even]


def _model(row: Ratio, y: int) -> str:
    name = f'<text x="{LABELS - 12}" y="{y + 17}" font-size="12.5" text-anchor="end">{escape(row.model)}</text>'
    return name + _bar(row.decode, y, DECODE) + _bar(row.prefill, y + BAR + 1, PREFILL)


def _bar(ratio: float, y: int, color: str) -> str:
    length = UNIT * ratio
    return (
        f'<rect x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{color}"/>'
        f'<text x="{LABELS + length + 5:.1f}" y="{y + 10}" font-size="11">{ratio:.2f}</text>'
    )


def _even(bottom: int) -> str:
    return f'<path d="M{LABELS + UNIT} {TOP - 6}V{bottom}" stroke="{INK}" stroke-dasharray="4 3"/>'
