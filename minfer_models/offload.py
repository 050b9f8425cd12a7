"""How a model's layers are split between an accelerator and the CPU.

Blocks 0 to N run on the device. What is in no block (the embedding, the last norm, the head) follows only when all
blocks do, so that a part never has to fit the two largest tensors. A plan is made from the file's index, before a
weight is read, and checked against what registering the weights took.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from minfer_ir.memory.budget import HELD_BACK, mib
from minfer_ir.params import DevicePlan
from minfer_ir.runtime.backend import MemoryInfo
from minfer_models.engine.options import EngineError

BLOCK = re.compile(r"blk\.(\d+)\.")
Layers = int | Literal["auto"] | None


class OffloadError(EngineError):
    """A split of the layers that can't be made, or wasn't what was planned; the message has the numbers."""


@dataclass(frozen=True, slots=True)
class BlockBytes:
    """Bytes that the weights take on the device: of each block, and of what is in none."""

    blocks: tuple[int, ...]
    others: int

    @classmethod
    def of(cls, needs: Mapping[str, int], n_blocks: int) -> BlockBytes:
        """Add up bytes by tensor name."""
        blocks, others = [0] * n_blocks, 0
        for name, nbytes in needs.items():
            if (block := BLOCK.match(name)) is not None:
                blocks[int(block[1])] += nbytes
            else:
                others += nbytes
        return cls(tuple(blocks), others)

    def planned(self, layers: int) -> int:
        """Bytes of a plan that offloads so many blocks."""
        return sum(self.blocks[:layers]) + (self.others if layers == len(self.blocks) else 0)


@dataclass(frozen=True, slots=True)
class OffloadPlan:
    """`layers` of `n_blocks` blocks run on the device, with `planned` bytes of weights there; `source` says why.

    `limit` is the most that the weights may take, where a fit decided.
    """

    layers: int
    n_blocks: int
    planned: int
    source: str
    limit: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether the embedding and the head run on the device too."""
        return self.layers == self.n_blocks

    def device_plan(self, backend: str) -> DevicePlan:
        """As the lowering takes it: part of a graph's identity.

        A full plan leaves what the device can't run to the CPU; blocks of a part are on the device or refused.
        """
        if self.is_full:
            return DevicePlan((backend, "cpu"))
        return DevicePlan(("cpu",), tuple((block, backend) for block in range(self.layers)))

    def check(self, registered: int) -> None:
        """Hold the bytes that were registered against the plan; raises OffloadError for more than a fit had."""
        if self.limit is not None and registered > self.limit:
            raise OffloadError(
                f"{self.layers} of {self.n_blocks} blocks were to take {mib(self.planned)} of the {mib(self.limit)} "
                f"that weights may take, and took {mib(registered)}; --gpu-layers {max(self.layers - 1, 0)} takes less"
            )

    def text(self, device: str, registered: int) -> str:
        """The plan in one line, with the bytes that the device holds now."""
        if not self.layers:
            return f"offload: cpu only, 0 of {self.n_blocks} blocks on {device} ({self.source})"
        rest = (
            "embedding and head too"
            if self.is_full
            else f"{self.n_blocks - self.layers} on cpu with embedding and head"
        )
        return (
            f"offload: {self.layers} of {self.n_blocks} blocks on {device}, {rest} "
            f"({mib(registered)} of weights there; {self.source})"
        )


def parse_layers(text: str) -> Layers:
    """`auto` or a number of blocks; raises OffloadError for anything else."""
    if text.strip().lower() == "auto":
        return "auto"
    if not text.strip().isdecimal():
        raise OffloadError(f"--gpu-layers {text}: expected a number of blocks, or auto")
    return int(text)


def fit_blocks(budget: int, sizes: BlockBytes, reserve: int) -> int:
    """The most blocks from 0 on whose weights fit `budget` beside `reserve`.

    A prefix: a gap would put a block of the CPU's between two of the device's. All blocks only together with what is in
    none.
    """
    used = reserve
    for block, nbytes in enumerate(sizes.blocks):
        used += nbytes
        if used > budget:
            return block
    n_blocks = len(sizes.blocks)
    return n_blocks if used + sizes.others <= budget else max(n_blocks - 1, 0)


def weight_budget(memory: MemoryInfo, limit: int | None) -> tuple[int, str]:
    """The bytes that an automatic plan may use on the device, and where the number is from.

    `limit` as set, else three quarters of what is free, as for every graph later on. Raises OffloadError when the
    device was asked and the query failed: that isn't zero bytes.
    """
    if limit is not None:
        return limit, f"--gpu-mem {mib(limit)}"
    if memory.outcome == "failed":
        raise OffloadError(f"--gpu-layers auto: {memory.failure}; give --gpu-mem MIB, or a number of layers")
    if memory.available is None:
        raise OffloadError("--gpu-layers auto: this device doesn't report its memory; give --gpu-mem MIB")
    return memory.available // HELD_BACK * (HELD_BACK - 1), f"three quarters of {mib(memory.available)} free"


def plan_offload(
    layers: Layers, sizes: BlockBytes, memory: Callable[[], MemoryInfo], limit: int | None = None
) -> OffloadPlan:
    """The plan for a request; None asks for all blocks.

    `auto` fits blocks into three quarters of its budget: the last quarter is for KV cells and buffers, whose sizes the
    graphs decide. Raises OffloadError.
    """
    n_blocks = len(sizes.blocks)
    if layers is None:
        return OffloadPlan(n_blocks, n_blocks, sizes.planned(n_blocks), "every layer")
    if layers != "auto":
        if layers < 0:
            raise OffloadError(f"--gpu-layers {layers}: expected a number of blocks, or auto")
        chosen = min(layers, n_blocks)
        return OffloadPlan(chosen, n_blocks, sizes.planned(chosen), f"--gpu-layers {layers}")
    budget, origin = weight_budget(memory(), limit)
    reserve = budget // HELD_BACK
    fitted = fit_blocks(budget, sizes, reserve)
    source = (
        f"auto: {fitted} of {n_blocks} fit {mib(budget)}, of which {mib(reserve)} for KV cells and buffers; {origin}"
    )
    return OffloadPlan(fitted, n_blocks, sizes.planned(fitted), source, budget - reserve)


def left_to_cpu(counts: Sequence[tuple[str, str]]) -> str | None:
    """One line on the nodes, (backend, op) each, that the CPU runs of a plan that was to run on the device whole."""
    ops = sorted({op for backend, op in counts if backend == "cpu"})
    if not ops:
        return None
    number = sum(backend == "cpu" for backend, _ in counts)
    return f"{number} of {len(counts)} nodes of a step run on cpu, which the device has no kernel for: {', '.join(ops)}"
