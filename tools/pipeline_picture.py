"""docs/pipeline.svg: the stages of lowering, drawn from the pipeline itself."""

from __future__ import annotations

from html import escape

from minfer_ir.evaluate import Weights
from minfer_ir.graph import Graph
from minfer_ir.passes.pipeline import default_pipeline
from minfer_ir.runtime.resources import Resources

WHAT = {
    "build": ("the model as a graph", "of a row bucket, by its architecture file"),
    "canonicalize": ("one form", "idle views dropped, reshapes merged"),
    "assign": ("a backend per node", "what nobody can run is refused here"),
    "fuse": ("compositions to fused ops", "patterns traced from decompose()"),
    "legalize": ("what a backend needs", "quantized activations, copies"),
    "fuse-legal": ("fusions once more", "now with what legalize put in"),
    "cse": ("equal nodes merged", "q, k and v share one quantize_act"),
    "dce": ("dead nodes dropped", "stores and inputs stay"),
    "split": ("runs per backend", "and what crosses between them"),
    "liveness": ("who lives how long", "through views and in-place results"),
    "allocate": ("a place per value", "size classes, in-place, offsets"),
    "lower": ("programs", "pools, packed weights, tapes"),
}
"""What a stage gives, and a word on how."""

WIDTH, HEIGHT, GAP, COLUMNS = 276, 78, 34, 3
INK, PAPER, EDGE = "#1f2933", "#f4f6f8", "#52606d"
BANDS = ("#e3f2e6", "#e3ecf7", "#f7efe0", "#f3e6f2")


def picture() -> str:
    """The SVG: stages row by row, an arrow from each to the next."""
    names = [p.name for p in default_pipeline(lambda _: Graph((), ()), Resources([], Weights()))]
    rows = -(-len(names) // COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP
    body = [_box(i, name) for i, name in enumerate(names)]
    body += [_arrow(i) for i in range(len(names) - 1)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" fill="{INK}">'
    )
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{EDGE}"/></marker></defs>'
    )
    ground = f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>'
    return "\n".join([head, marker, ground, *body, "</svg>"]) + "\n"


def _corner(i: int) -> tuple[int, int]:
    row, column = divmod(i, COLUMNS)
    return GAP + column * (WIDTH + GAP), GAP + row * (HEIGHT + GAP)


def _box(i: int, name: str) -> str:
    x, y = _corner(i)
    gives, how = WHAT[name]
    return (
        f'<g><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{BANDS[i // COLUMNS % len(BANDS)]}" '
        f'stroke="{EDGE}"/>'
        f'<text x="{x + 14}" y="{y + 24}" font-size="15" font-weight="600" font-family="ui-monospace, monospace">'
        f"{i + 1}. {escape(name)}</text>"
        f'<text x="{x + 14}" y="{y + 45}" font-size="13.5">{escape(gives)}</text>'
        f'<text x="{x + 14}" y="{y + 64}" font-size="12" fill="{EDGE}">{escape(how)}</text></g>'
    )


def _arrow(i: int) -> str:
    x, y = _corner(i)
    next_x, next_y = _corner(i + 1)
    middle = y + HEIGHT // 2
    if next_y == y:
        path = f"M{x + WIDTH} {middle}H{next_x - 2}"
    else:
        bend = y + HEIGHT + GAP // 2
        path = f"M{x + WIDTH // 2} {y + HEIGHT}V{bend}H{next_x + WIDTH // 2}V{next_y - 2}"
    return f'<path d="{path}" fill="none" stroke="{EDGE}" stroke-width="1.6" marker-end="url(#tip)"/>'
