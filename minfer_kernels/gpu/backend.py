"""The GPU backend: plans become lists of Triton launches over torch tensors."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import torch

from minfer_ir.formats.base import Bytes, Format
from minfer_ir.graph import Graph
from minfer_ir.ops import OPS
from minfer_ir.opspec import WEIGHT_TYPES, Array
from minfer_ir.runtime.backend import BackendError, Binding, BufRef, Capabilities, MemoryInfo, Split
from minfer_ir.types import Shape, TensorType
from minfer_kernels.gpu.emit import EMITTERS, REFUSALS
from minfer_kernels.gpu.emitter import Emitter
from minfer_kernels.gpu.launch import Launch
from minfer_kernels.gpu.weights import GpuWeight, make_weight, weight_bytes
from minfer_kernels.tensors.buffers import TensorBuffers


class GpuBackend:
    """Owns device buffers and weights. `device` is a CUDA device, or the CPU under Triton's interpreter."""

    name = "gpu"
    capabilities = Capabilities(
        activation_formats=dict.fromkeys(WEIGHT_TYPES, "f32"),
        kv_types=("f32", "f16", "q8_0"),
        window_modes=("causal", "span", "map"),
        layouts="rows",
        weight_concat=True,
        checks_weights=True,
    )

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.buffers = TensorBuffers(device)
        self._weights: list[GpuWeight] = []

    def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
        """None, or why no kernel takes these types."""
        if op in OPS and OPS[op].effect in ("leaf", "view"):
            return None
        if op not in EMITTERS:
            return "no kernel"
        return REFUSALS[op](attrs, out, tuple(operands)) if op in REFUSALS else None

    def memory(self) -> MemoryInfo:
        """Of the device; unknown where the query fails."""
        return MemoryInfo(None, None)

    def allocate(self, nbytes: int) -> int:
        """A zeroed device buffer."""
        return self.buffers.allocate(nbytes)

    def free(self, buffer: int) -> None:
        """Drop a device buffer."""
        self.buffers.free(buffer)

    def write(self, ref: BufRef, data: Array) -> None:
        """Copy host rows into a window."""
        self.buffers.write(ref, data)

    def read(self, ref: BufRef, kind: TensorType, n_rows: int | None = None, copy: bool = True) -> Array:
        """Copy rows out of a window."""
        return self.buffers.read(ref, kind, n_rows)

    def copy_cells(self, ref: BufRef, row_bytes: int, moves: Sequence[tuple[int, int, int]]) -> None:
        """Move KV rows, as if every row were read before any is written."""
        region = self.buffers.cells(ref, row_bytes, moves)
        lifted = [region[source : source + count].clone() for source, _, count in moves]
        for (_, target, count), held in zip(moves, lifted, strict=True):
            region[target : target + count] = held

    def register_weight(
        self, key: str, dtype: Format, shape: Shape, parts: Sequence[Bytes], uses: frozenset[str]
    ) -> int:
        """Cut the weight into planes on the device; NonFiniteWeightError for a NaN or infinite scale."""
        self._weights.append(make_weight(key, dtype, shape, parts, self.device))
        return len(self._weights) - 1

    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return sum(w.nbytes for w in self._weights)

    def weight_need(self, dtype: Format, shape: Shape, uses: frozenset[str]) -> int:
        """Bytes of the weight's planes."""
        return weight_bytes(dtype, shape)

    def table_need(self, graph: Graph) -> int:
        """None are made."""
        return 0

    def compile(self, graph: Graph, split: Split, binding: Binding) -> GpuProgram:
        """The launches of the split."""
        weights = {node: self._weights[w] for node, w in binding.weights.items()}
        emitter = Emitter(graph, binding, self.buffers, weights)
        spans: dict[int, tuple[int, int]] = {}
        for node in (graph[n] for n in split.nodes):
            if node.spec.effect == "view":
                continue
            start = len(emitter.launches)
            EMITTERS[node.op](emitter, node)
            spans[node.id] = (start, len(emitter.launches))
        return GpuProgram(graph, split, emitter.launches, spans)


class GpuProgram:
    """Launches, and which of them belong to which node."""

    def __init__(self, graph: Graph, split: Split, launches: list[Launch], spans: dict[int, tuple[int, int]]) -> None:
        self._graph, self._split, self._launches, self._spans = graph, split, launches, spans

    def run(self) -> None:
        """All launches in order."""
        for launch in self._launches:
            launch.run()

    def run_node(self, node_id: int) -> None:
        """The launches of one node; a view has none."""
        if self._graph[node_id].spec.effect == "view":
            return
        if node_id not in self._spans:
            raise BackendError(f"{self._graph[node_id]} isn't in split {self._split.index}")
        first, stop = self._spans[node_id]
        for launch in self._launches[first:stop]:
            launch.run()

    def listing(self, nodes: Container[int] | None = None) -> list[str]:
        """One line per launch."""
        return [
            f"{self._launches[i].node}: {self._launches[i]}"
            for node, (first, stop) in self._spans.items()
            if nodes is None or node in nodes
            for i in range(first, stop)
        ]
