"""Tables of rope angles on the device, made once for every program that asks for the same."""

from __future__ import annotations

import math

import numpy as np
import torch

from minfer_ir.graph import Graph
from minfer_ir.ops.fused_rope import plain_rope
from minfer_ir.ops.rope import RopeAttrs, rope_frequencies
from minfer_ir.opspec import Array

CHUNK_ROWS = 2048
"""Positions whose float64 values exist at a time."""
NO_SCALING = 5 * (1.0,)


class RopeTables:
    """Cosines and sines by attrs and frequency factors (the id of the weight that holds them)."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._made: dict[tuple[RopeAttrs, int | None], torch.Tensor] = {}

    @property
    def nbytes(self) -> int:
        """Of all that were made."""
        return sum(table.numel() * 4 for table in self._made.values())

    def need(self, graph: Graph, backend: str) -> int:
        """Bytes of the tables of `graph`'s rope nodes on `backend` that have none yet."""
        made = {attrs for attrs, _ in self._made}
        wanted = {plain_rope(n.attrs) for n in graph if isinstance(n.attrs, RopeAttrs) and n.backend == backend}
        return sum(4 * attrs.max_positions * attrs.dims for attrs in wanted - made)

    def table(self, attrs: RopeAttrs, key: int | None, factors: torch.Tensor | None) -> torch.Tensor:
        """`[max_positions, 2, dims / 2]` float32, as `minfer_ir.ops.rope.rope_table` has it."""
        if (attrs, key) not in self._made:
            host = None if factors is None else factors.cpu().numpy()
            self._made[attrs, key] = _make(attrs, host, self._device)
        return self._made[attrs, key]


def _make(attrs: RopeAttrs, factors: Array | None, device: torch.device) -> torch.Tensor:
    frequencies, amplitude = rope_frequencies(attrs, factors)
    turns = torch.from_numpy(frequencies).to(device)
    table = torch.empty((attrs.max_positions, 2, attrs.dims // 2), dtype=torch.float32, device=device)
    for start in range(0, attrs.max_positions, CHUNK_ROWS):
        rows = table[start : start + CHUNK_ROWS]
        angles = torch.arange(start, start + len(rows), dtype=torch.float64, device=device)[:, None] * turns
        rows[:, 0] = torch.cos(angles) * amplitude
        rows[:, 1] = torch.sin(angles) * amplitude
    return table


def computed_factors(attrs: RopeAttrs, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """What the kernel that divides by computed frequency factors reads: frequencies and numbers, float64.

    Every scaling but llama3's multiplies a frequency by what doesn't depend on it, so it comes before the factors.
    """
    scaling = attrs.scaling
    frequencies, amplitude = rope_frequencies(attrs)
    numbers: tuple[float, ...] = (amplitude, *NO_SCALING[1:])
    if scaling.kind == "llama3":
        frequencies = attrs.base ** -(np.arange(0, attrs.dims, 2, dtype=np.float64) / attrs.dims)
        low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
        numbers = (amplitude, scaling.original_context / (2 * math.pi), low, high - low, scaling.factor)
    return torch.from_numpy(frequencies).to(device), torch.tensor(numbers, dtype=torch.float64, device=device)
