"""A node whose value isn't what it should be, told so that the broken kernel is plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from minfer_ir.evaluate import WeightSource, decoded, reference_operands
from minfer_ir.graph import Graph, Node
from minfer_ir.opspec import Array
from minfer_ir.printer import print_node
from minfer_ir.runtime.isolated import weight_keys
from minfer_ir.runtime.trace import Step, ValueStats
from minfer_ir.testing.tolerances import Held, difference, weight_terms

AROUND = 3
"""Elements shown on either side of the worst one."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """`reason` says by which tolerance class how much differs; `actual` and `expected` are numbers of one shape.

    `operands` are (operand name, node, stats); a weight has no stats.
    """

    node: Node
    line: str
    reason: str
    operands: Sequence[tuple[str, Node, ValueStats | None]]
    actual: Array
    expected: Array
    stats: tuple[ValueStats, ValueStats]

    @property
    def worst(self) -> tuple[int, ...]:
        """The index of the element that is furthest off; one that is NaN on one side only comes first."""
        with np.errstate(invalid="ignore"):
            off = np.abs(self.actual.astype(np.float64) - self.expected.astype(np.float64))
        off[np.isnan(self.actual) != np.isnan(self.expected)] = np.inf
        return tuple(int(i) for i in np.unravel_index(int(np.argmax(np.nan_to_num(off, nan=0.0))), off.shape))

    def text(self, actual: str, expected: str) -> str:
        """The report; `actual` and `expected` name the two sides."""
        width = max(len(actual), len(expected))
        row, at = self.worst[:-1], self.worst[-1]
        start, stop = max(at - AROUND, 0), min(at + AROUND + 1, self.actual.shape[-1])
        return "\n".join(
            [
                f"{self.node} differs: {self.reason}",
                f"  {self.line}",
                *(f"  {name}: {node} {_stats_text(stats, node)}" for name, node, stats in self.operands),
                f"  {actual:<{width}}  {self.stats[0]}",
                f"  {expected:<{width}}  {self.stats[1]}",
                f"  worst at {list(self.worst)}; elements {start} to {stop - 1} of that row:",
                f"  {actual:<{width}}  {_numbers(self.actual[(*row, slice(start, stop))])}",
                f"  {expected:<{width}}  {_numbers(self.expected[(*row, slice(start, stop))])}",
            ]
        )


def find_mismatch(
    graph: Graph, step: Step, values: Mapping[int, Array], expected: Array, weights: WeightSource
) -> Mismatch | None:
    """None when the step's value is within its op's tolerance class of `expected` (both in storage form).

    `values` as `operand_values` gives them.
    """
    node = step.node
    held = Held(node.spec, node.attrs, node.type, reference_operands(node, graph, values))
    reason = difference(held, expected, step.value)
    if reason is not None and node.spec.is_product:
        leaves = node.spec.weight_operands([graph[s] for s in node.sources])
        terms = tuple(_terms(leaf, weights) for leaf in leaves)
        reason = difference(replace(held, terms=terms), expected, step.value)
    if reason is None:
        return None
    operands = [
        (name, source, ValueStats.of(source.type, step.operands[source.id]) if source.id in step.operands else None)
        for name, source in node.operands(graph)
    ]
    return Mismatch(
        node,
        print_node(graph, node),
        reason,
        operands,
        decoded(node.type, step.value),
        decoded(node.type, expected),
        (ValueStats.of(node.type, step.value), ValueStats.of(node.type, expected)),
    )


def _terms(leaf: Node, weights: WeightSource) -> Array:
    return np.concatenate([weight_terms(leaf.attrs.dtype, weights.rows(key)) for key in weight_keys(leaf)])


def _stats_text(stats: ValueStats | None, node: Node) -> str:
    return f"{node.type}" if stats is None else str(stats)


def _numbers(row: Array) -> str:
    return " ".join(f"{value:>12.6g}" for value in row.tolist())
