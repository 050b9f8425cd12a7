"""A little SVG: shapes at pixels, text escaped, numbers rounded."""

from __future__ import annotations

from html import escape

FONT = "font-family='Helvetica, Arial, sans-serif'"


class Drawing:
    """Collects shapes; `text()` is the file."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._size = (width, height)
        self._shapes = [
            f"<title>{escape(title)}</title>",
            f"<rect width='{_n(width)}' height='{_n(height)}' fill='#fff'/>",
        ]

    def line(
        self, a: tuple[float, float], b: tuple[float, float], color: str, width: float = 1, dash: str = ""
    ) -> None:
        """From a to b."""
        dashed = f" stroke-dasharray='{dash}'" if dash else ""
        places = f"x1='{_n(a[0])}' y1='{_n(a[1])}' x2='{_n(b[0])}' y2='{_n(b[1])}'"
        self._shapes.append(f"<line {places} stroke='{color}' stroke-width='{_n(width)}'{dashed}/>")

    def rect(self, x: float, y: float, width: float, height: float, fill: str, tip: str = "") -> None:
        """Filled; `tip` shows under the pointer."""
        place = f"x='{_n(x)}' y='{_n(y)}' width='{_n(max(width, 0))}' height='{_n(height)}'"
        self._shapes.append(f"<rect {place} fill='{fill}'>{_tip(tip)}</rect>")

    def circle(self, x: float, y: float, radius: float, fill: str, stroke: str, tip: str = "") -> None:
        """Half transparent, so that what lies below shows."""
        place = f"cx='{_n(x)}' cy='{_n(y)}' r='{_n(radius)}'"
        style = f"fill='{fill}' fill-opacity='0.75' stroke='{stroke}' stroke-width='1.5'"
        self._shapes.append(f"<circle {place} {style}>{_tip(tip)}</circle>")

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 12,
        color: str = "#222",
        anchor: str = "start",
        turn: float = 0,
        halo: bool = False,
    ) -> None:
        """The baseline starts at (x, y), or ends or centres there; turned by degrees; white around it with `halo`."""
        turned = f" transform='rotate({_n(turn)} {_n(x)} {_n(y)})'" if turn else ""
        around = " stroke='#fff' stroke-width='3' stroke-opacity='0.8' paint-order='stroke'" if halo else ""
        style = f"font-size='{_n(size)}' fill='{color}' text-anchor='{anchor}' {FONT}{around}"
        self._shapes.append(f"<text x='{_n(x)}' y='{_n(y)}' {style}{turned}>{escape(words)}</text>")

    def file(self) -> str:
        """The SVG file."""
        width, height = (_n(v) for v in self._size)
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>"
        )
        return "\n".join([head, *self._shapes, "</svg>", ""])


def _tip(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
