"""GraphParams: everything a graph's topology depends on, and nothing else.

Two forwards with equal params run the same plan. The actual number of rows, positions, sequences and cache
contents are data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WindowMode = Literal["causal", "span", "map"]


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """Which backend runs what: `order` by preference, `blocks` to pin model layers."""

    order: tuple[str, ...] = ("cpu",)
    blocks: tuple[tuple[int, str], ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.order, str):
            raise ValueError(f"a device plan takes a tuple of backend names, got the text {self.order!r}")
        object.__setattr__(self, "order", tuple(self.order))
        object.__setattr__(self, "blocks", tuple(tuple(pin) for pin in self.blocks))


@dataclass(frozen=True, slots=True)
class GraphParams:
    """The reuse identity of a graph.

    `rows` is the row bucket. `output_rows` is the bucket of the rows whose logits are wanted, None for every row.
    `n_ctx` bounds positions, `n_cells` is the KV arena. `fusions_off` are the names of the switched-off fusions.
    `weights_version` counts replacements of the weights.
    """

    rows: int
    output_rows: int | None
    n_ctx: int
    n_cells: int
    window: WindowMode
    kv_type: str
    devices: DevicePlan = DevicePlan()
    fusions_off: frozenset[str] = frozenset()
    weights_version: int = 0


def bucket(rows: int, limit: int) -> int:
    """The smallest power of two that holds `rows`, up to `limit`; raises ValueError when it doesn't fit."""
    if not 1 <= rows <= limit:
        raise ValueError(f"a forward has 1 to {limit} rows, got {rows}")
    return min(1 << (rows - 1).bit_length(), limit)
