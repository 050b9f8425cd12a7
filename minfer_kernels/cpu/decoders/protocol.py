"""The seam between a weight format and the matmul skeleton.

For one output row (a lane) and one token the skeleton computes, over the blocks of the row ascending,

    sums    = exact integer products of quants (times small scales), over the block's runs
    offsets = sum over the block's runs of small minimums times the sums of the activation's quants
    state   = close(block, sums, offsets, state)

in that order and no other, for all rows of a group at once; `finish` turns the last state into the result. The
bits thus depend on the weights and the token alone. A decoder supplies the steps as kernel functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minfer_kernels.cpu.weights.layouts import WeightLayout

Step = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Decoder:
    """The steps of one weight format; `block` is the address of a group block, `x` of a token's activation row.

    `runs` and `offset_runs` are how often per block the skeleton calls `load` with `dot`, and `load_offsets`.
    What `load`, `load_offsets` and `load_scales` return is shared by all tokens of a tile. "ints" is a vector of int32,
    one lane per row of the group.
    """

    layout: WeightLayout
    runs: int
    offset_runs: int
    load: Step
    """(block, run index) to decoded weights."""
    start: Step
    """(x, k, block index) to ints: what the block's sums start at."""
    dot: Step
    """(ints, weights, address of the run's 32 activation bytes) to ints."""
    load_offsets: Step
    """(block, run index) to 16-bit lanes: factors of the run's two sums of 16 activation quants."""
    load_scales: Step
    """(block) to the block's scales as float32 lanes."""
    begin: Step
    """() to the state of an empty row."""
    close: Step
    """(scales, x, k, block index, sums, offsets, state) to the new state."""
    finish: Step
    """(state) to float32 lanes."""
