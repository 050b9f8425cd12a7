"""What the functions of `emit` write through: operands resolved to tensors, strides and row counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from minfer_ir.dtypes import I32
from minfer_ir.graph import Graph, Node
from minfer_ir.ops.rope import RopeAttrs
from minfer_ir.runtime.backend import Binding
from minfer_ir.types import TensorType
from minfer_kernels.gpu.launch import Fallback, Launch
from minfer_kernels.gpu.scratch import Dealer, Shapes, Wants
from minfer_kernels.gpu.tables import RopeTables
from minfer_kernels.gpu.weights import GpuWeight
from minfer_kernels.tensors.buffers import TensorBuffers

N_ROWS = TensorType((2,), I32)


class Emitter(Shapes):
    """Resolves operands while a program's launches are written.

    Scratch comes from `dealt`, which holds every node to what it declared: `scratch` and `counters` are its until the
    next node's launches.
    """

    def __init__(
        self,
        shapes: Shapes,
        binding: Binding,
        buffers: TensorBuffers,
        weights: Mapping[int, GpuWeight],
        tables: RopeTables,
        dealt: Dealer,
    ) -> None:
        super().__init__(shapes.graph, shapes.device, shapes.attention, shapes.invariant, shapes.target)
        self.binding, self.weights = binding, weights
        self.kept: dict[Any, Any] = {}
        """What the nodes of one program share, by whatever tells it from others."""
        self.dealt = dealt
        self._tables = tables
        self.launches: list[Launch] = []
        self.label: str | None = None
        """Who asks for the launches in their listing, in the place of a node."""
        self._buffers = buffers
        self.n_rows = buffers.window(binding.n_rows, N_ROWS)

    def launch(
        self,
        site: str,
        node: Node,
        kernel: Any,
        grid: tuple[int, ...],
        warps: int = 4,
        stages: int = 2,
        fallback: Fallback | None = None,
        **given: Any,
    ) -> None:
        """Append one launch. Arguments in capitals are compile-time constants.

        `site` is one of the area's SITES. Without a `fallback` a failure is the node's.
        """
        made = self.made(site, node, kernel, grid, warps, stages, **given)
        made.fallback = fallback
        self.launches.append(made)

    def made(
        self, site: str, node: Node, kernel: Any, grid: tuple[int, ...], warps: int = 4, stages: int = 2, **given: Any
    ) -> Launch:
        """A launch that isn't in the program: for a fallback."""
        constants = {name: value for name, value in given.items() if name.isupper()}
        args = {name: value for name, value in given.items() if name not in constants}
        return Launch(site, self.label or node.name, kernel, grid, args, constants, warps, stages)

    def tensor(self, node: Node) -> torch.Tensor:
        """A value's window in storage form (blocks as uint8 rows); a vector weight's float32 values."""
        if node.id in self.weights:
            return self.weights[node.id].values_of(node)
        return self._buffers.window(self.binding.values[node.id], node.type)

    def bytes_at(self, node: Node) -> torch.Tensor:
        """A value's window as bytes from its first one on: for kernels that address rows by byte strides."""
        ref = self.binding.values[node.id]
        return self._buffers.bytes_of(ref.buffer)[ref.offset : ref.offset + ref.length]

    def row_stride(self, node: Node) -> int:
        """Bytes between rows; 0 for a vector, which is the same row again."""
        if node.id in self.weights or (len(node.type.shape) == 1 and node.type.rows is None):
            return 0
        return self.binding.values[node.id].strides[0]

    def rope_table(self, attrs: RopeAttrs, factors: Node | None) -> torch.Tensor:
        """Cosines and sines `[max_positions, 2, dims / 2]`; `factors` is the weight of frequency factors."""
        if factors is None:
            return self._tables.table(attrs, None, None)
        return self._tables.table(attrs, self.binding.weights[factors.id], self.tensor(factors))

    def scratch(self, nbytes: int) -> torch.Tensor:
        """Bytes that the node's launches write before they read them."""
        return self.dealt.scratch(nbytes)

    def counters(self, n: int) -> torch.Tensor:
        """int32 zeros that the node's launches leave as zeros."""
        return self.dealt.counters(n)

    def rows_at(self, node: Node) -> torch.Tensor:
        """The int32 that holds how many rows `node` has in this step."""
        if node.type.rows is None:
            return torch.tensor([most_rows(node)], dtype=torch.int32, device=self.device)
        return self.n_rows[0:1] if node.type.rows == "token" else self.n_rows[1:2]


Emit = Callable[[Emitter, Node], None]
Refusal = Callable[[Any, TensorType, "tuple[TensorType, ...]"], "str | None"]


@dataclass(frozen=True, slots=True)
class Group:
    """A run of consecutive nodes, views aside, that one launch serves; `name` is its switch (`LAUNCH_GROUPS`).

    `taken` says how many of the nodes from `nodes[i]` on it takes, 0 for none. `emit` writes the launch in the place of
    the first: no operand of a later member may be computed between them. `reads_longer`: results of later members are
    written while other programs of the launch still read the first one's operands. `wants`: unset, what the members
    want.
    """

    name: str
    taken: Callable[[Graph, Sequence[Node], int], int]
    emit: Callable[[Emitter, Sequence[Node]], None]
    reads_longer: bool = False
    wants: Callable[[Shapes, Sequence[Node]], Wants] | None = None


def row_width(node: Node) -> int:
    """Elements of one row: everything behind axis 0; of a vector that isn't rows, all of it."""
    shape = node.type.shape
    if len(shape) == 1:
        return 1 if node.type.rows else shape[0]
    return math.prod(shape[1:])


def most_rows(node: Node) -> int:
    """Rows that the value has room for: what a grid is made for."""
    first, *rest = node.type.shape
    return first if rest or node.type.rows else 1
