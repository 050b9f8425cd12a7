"""How much memory a backend uses, as numbers and as text."""

from __future__ import annotations

from dataclasses import dataclass

from minfer_ir.memory.budget import mib


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes on one backend.

    `pool` is what the pool holds now, `live` what the running plan uses of it at its fullest node, `peak` the most
    that weights, KV cells and pool ever took together. `budget` is None when there is no bound. `scratch` is what of
    the pool, and of `live`, the running plan's kernels write beside values.
    """

    backend: str
    weights: int
    kv: int
    pool: int
    live: int
    peak: int
    budget: int | None
    scratch: int = 0

    @property
    def total(self) -> int:
        """Weights, KV cells and pool."""
        return self.weights + self.kv + self.pool

    @property
    def headroom(self) -> int | None:
        """What the budget leaves; None without a bound."""
        return None if self.budget is None else self.budget - self.total

    def text(self) -> str:
        """One line per number, aligned."""
        numbers = {
            "weights": self.weights,
            "kv cells": self.kv,
            "pool": self.pool,
            "live": self.live,
            **({"scratch": self.scratch} if self.scratch else {}),
            "total": self.total,
            "peak": self.peak,
            "budget": self.budget,
            "headroom": self.headroom,
        }
        lines = [f"  {name:<9}{'no bound' if n is None else mib(n):>14}" for name, n in numbers.items()]
        return "\n".join([f"memory on {self.backend}", *lines])
