"""What is aimed at on an H200, beside which results are reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """`of` is what `target` is a share of; with `at_most` what is measured shall not be more, else not be less."""

    name: str
    target: float
    of: str
    at_most: bool = False

    def reached(self, measured: float) -> bool:
        """Whether what was measured is good enough."""
        return measured <= self.target if self.at_most else measured >= self.target

    @property
    def text(self) -> str:
        """`>= 78 % of datasheet bandwidth`, `<= 5 launches`"""
        sign = "<=" if self.at_most else ">="
        return f"{sign} {self.shown(self.target)} {self.of}"

    def shown(self, value: float) -> str:
        """A value in the goal's own unit: shares in percent, times and counts as they are."""
        return f"{value:.3g}" if self.at_most else f"{100 * value:.1f} %".replace(".0 %", " %")


DECODE_OF_BANDWIDTH: Mapping[str, Goal] = {
    "Q8_0": Goal("7B decode, Q8_0", 0.78, "of datasheet bandwidth"),
    "Q4_K_M": Goal("7B decode, Q4_K mix", 0.70, "of datasheet bandwidth"),
}
"""Decoding at depth 0: bytes of weights and cells read per second."""
ATTENTION_OF_SDPA = Goal("decode attention, f16 cells", 0.90, "of SDPA's speed")
PREFILL_OF_DENSE = Goal("prefill of 4096 tokens", 0.60, "of dense f16 rate")
INVARIANT_COST = Goal("batch-invariant splits", 1.10, "x the best split's time", at_most=True)
"""Attention by parts of the one fixed size over attention by parts of the size that is fastest there."""
PACKED_COST = Goal("decode over q8_0 cells", 1.30, "x the time over f16 cells", at_most=True)
PACKED_GAIN = Goal("decode over q8_0 cells, deepest", 1.00, "x the time over f16 cells", at_most=True)
LAUNCHES_PER_BLOCK = Goal("launches per layer, decode", 5, "launches", at_most=True)
"""Of a model whose matrices are all of one type."""

GOALS = (
    *DECODE_OF_BANDWIDTH.values(),
    ATTENTION_OF_SDPA,
    PREFILL_OF_DENSE,
    INVARIANT_COST,
    PACKED_COST,
    PACKED_GAIN,
    LAUNCHES_PER_BLOCK,
)
"""All of them, in the order of the report's first table."""
