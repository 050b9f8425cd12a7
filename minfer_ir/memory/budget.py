"""Refuse what can't fit before any memory is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from minfer_ir.runtime.backend import MemoryInfo

HELD_BACK = 4
"""One part in this many of the available bytes is left to everybody else when no budget was set."""


class BudgetError(RuntimeError):
    """A graph that doesn't fit; the message has every number in MiB."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes a graph asks for on one backend, and what is held there already.

    `pool_need`, `kv_need` and `weights_need` would be new allocations; `weights`, `kv` and `pool` exist. `scratch` is
    what of the graph's buffers isn't for values.
    """

    pool_need: int
    kv_need: int
    weights: int
    kv: int
    pool: int
    weights_need: int = 0
    scratch: int = 0

    @property
    def need(self) -> int:
        """Bytes that would be new."""
        return self.pool_need + self.kv_need + self.weights_need

    @property
    def held(self) -> int:
        """Bytes that are held already."""
        return self.weights + self.kv + self.pool


def budget_bytes(limit: int | None, memory: MemoryInfo, held: int) -> int | None:
    """The most bytes that weights, KV and pool may take together; None is no bound.

    An explicit `limit` wins. Else it's what is held plus three quarters of what the device has available. A device
    whose query failed gives no number and so no bound, while one that reports zero bytes allows nothing more.
    """
    if limit is not None:
        return limit
    if memory.available is None:
        return None
    return held + memory.available // HELD_BACK * (HELD_BACK - 1)


def check_budget(backend: str, demand: Demand, memory: MemoryInfo, limit: int | None = None) -> None:
    """Raise BudgetError when `demand` doesn't fit; call it before the pool is asked.

    A demand for nothing new always fits.
    """
    budget = budget_bytes(limit, memory, demand.held)
    if budget is None or not demand.need or demand.held + demand.need <= budget:
        return
    source = "set" if limit is not None else "three quarters of what was available, plus what is held"
    available = _available(memory)
    scratch = f" with {mib(demand.scratch)} of scratch" if demand.scratch else ""
    raise BudgetError(
        f"{backend}: this graph needs {mib(demand.need)} more (weights {mib(demand.weights_need)}, "
        f"buffers {mib(demand.pool_need)}{scratch}, KV cells {mib(demand.kv_need)}) on top of {mib(demand.weights)} "
        f"of weights, {mib(demand.kv)} of KV cells and {mib(demand.pool)} in the pool: "
        f"{mib(demand.held + demand.need)} exceeds the budget of {mib(budget)} ({source}; available {available}). "
        "A smaller context or prefill chunk needs less."
    )


def _available(memory: MemoryInfo) -> str:
    if memory.available is not None:
        return mib(memory.available)
    return "unknown" if memory.failure is None else f"unknown: {memory.failure}"


def mib(nbytes: int) -> str:
    """Bytes as MiB, with enough digits that a small difference shows."""
    return f"{nbytes / (1 << 20):.3f} MiB"
