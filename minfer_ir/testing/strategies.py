"""Hypothesis strategies: random graphs, and values for them. The one module of the kit that imports hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from minfer_ir.graph import Graph
from minfer_ir.ops import OPS
from minfer_ir.opspec import Array, Op
from minfer_ir.testing.growth.grow import add, finish
from minfer_ir.testing.growth.pool import AWKWARD, Growth
from minfer_ir.testing.values import Feed, draw_feed, draw_value
from minfer_ir.testing.variants import Variant, drawn_variant, layouts
from minfer_ir.types import TensorType

T = TypeVar("T")

GROWN = tuple(op for op in OPS.values() if op.effect != "leaf")


def dims(*extra: int) -> st.SearchStrategy[int]:
    """One dimension: 1, primes, widths off the vector size, whole blocks, and `extra`."""
    return st.sampled_from((*AWKWARD, *extra))


def generators() -> st.SearchStrategy[np.random.Generator]:
    """A seeded numpy generator."""
    return st.integers(0, 2**32 - 1).map(np.random.default_rng)


def values(kind: TensorType, ints: Sequence[int] | None = None) -> st.SearchStrategy[Array]:
    """Values of `kind` in storage form, as `draw_value` makes them."""
    return generators().map(lambda rng: draw_value(rng, kind, ints))


def feeds(graph: Graph, full: bool = False) -> st.SearchStrategy[Feed]:
    """Legal values for every leaf of `graph`, as `draw_feed` makes them; `full` fills the row buckets."""
    return generators().map(lambda rng: draw_feed(rng, graph, full))


@st.composite
def graphs(draw: st.DrawFn, max_ops: int = 16, n_blocks: int = 2, without: Sequence[str] = ()) -> Graph:
    """Random verified graphs of up to `max_ops` ops (and their leaves), in up to `n_blocks` model layers.

    They hold what passes have to survive: views of views, values read twice by one node and by many, in-place chances,
    stores followed by reads, quantized values, rows of both kinds, dead ends. `without` names ops to leave out. Any op
    in the registry takes part.
    """

    def choose(options: Sequence[T]) -> T:
        chosen: Any = draw(st.sampled_from(list(options)))
        return chosen

    growth = Growth(choose)
    ops = [op for op in GROWN if op.name not in without]
    n_ops = draw(st.integers(1, max_ops))
    wanted = draw(st.lists(st.sampled_from(ops), min_size=n_ops, max_size=n_ops))
    for i, op in enumerate(wanted):
        with growth.builder.block(i * n_blocks // len(wanted)):
            add(growth, op)
    return finish(growth)


@st.composite
def op_variants(draw: st.DrawFn, ops: Sequence[Op] = GROWN) -> Variant:
    """One op with operand types, attrs, indices and layout as a random graph would have them: for the op matrix."""

    def choose(options: Sequence[T]) -> T:
        chosen: Any = draw(st.sampled_from(list(options)))
        return chosen

    growth = Growth(choose)
    op = draw(st.sampled_from(list(ops)))
    for filler in [*draw(st.lists(st.sampled_from(("silu", "matmul", "reshape", "view")), max_size=2))]:
        add(growth, OPS[filler])
    assume(add(growth, op))
    node = growth.pool[-1]
    growth.builder.output(node)
    graph = growth.builder.build()
    feed = draw(feeds(graph, full=True))
    variant = drawn_variant(graph, node, feed.inputs)
    return draw(st.sampled_from([variant, *layouts(variant)]))
