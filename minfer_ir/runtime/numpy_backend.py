"""Numpy evaluation registered as a backend: every op, slowly, over the same planned buffers as any other."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from minfer_ir.dtypes import I32
from minfer_ir.evaluate import compute
from minfer_ir.formats.base import Bytes, Format
from minfer_ir.graph import Graph, Node
from minfer_ir.ops import OPS
from minfer_ir.ops.leaves import KV_TYPES
from minfer_ir.opspec import WEIGHT_TYPES, Array
from minfer_ir.runtime.backend import BackendError, Binding, Capabilities, Split
from minfer_ir.runtime.host import HostBackend, HostBuffers
from minfer_ir.types import Shape, TensorType

N_ROWS_TYPE = TensorType((2,), I32)


class NumpyBackend(HostBackend):
    """Runs the ops' own references; floats stay floats, so its matmuls read unquantized activations."""

    name = "numpy"
    capabilities = Capabilities(
        activation_formats=dict.fromkeys(WEIGHT_TYPES, "f32"),
        kv_types=KV_TYPES,
        window_modes=("causal", "span", "map"),
        layouts="any",
        weight_concat=True,
    )

    def __init__(self) -> None:
        super().__init__()
        self._weights: list[Array] = []

    def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
        """Everything that is declared."""
        return None if op in OPS else f"{op} isn't a declared op"

    def register_weight(
        self, key: str, dtype: Format, shape: Shape, parts: Sequence[Bytes], uses: frozenset[str]
    ) -> int:
        """Decode the parts to float32 and stack them."""
        rows = [dtype.decode(p).reshape(-1, shape[-1]) for p in parts]
        self._weights.append(np.concatenate(rows).reshape(shape))
        return len(self._weights) - 1

    def weight_bytes(self) -> int:
        """Bytes of the decoded weights."""
        return sum(w.nbytes for w in self._weights)

    def weight_need(self, dtype: Format, shape: Shape, uses: frozenset[str]) -> int:
        """Bytes of the decoded weight."""
        return 4 * math.prod(shape)

    def table_need(self, graph: Graph) -> int:
        """No tables are made."""
        return 0

    def compile(self, graph: Graph, split: Split, binding: Binding) -> NumpyProgram:
        """Bind the split's nodes to their windows."""
        weights = {node: self._weights[w] for node, w in binding.weights.items()}
        return NumpyProgram(graph, split, binding, self.buffers, weights)


class NumpyProgram:
    """Evaluates the split's nodes in order, each into its own window."""

    def __init__(
        self, graph: Graph, split: Split, binding: Binding, buffers: HostBuffers, weights: dict[int, Array]
    ) -> None:
        self._graph, self._split, self._binding, self._buffers, self._weights = graph, split, binding, buffers, weights

    def run(self) -> None:
        """Every node in order."""
        for node in self._split.nodes:
            self.run_node(node)

    def run_node(self, node_id: int) -> None:
        """Compute one node and copy the result into its window; views have nothing to do."""
        node = self._graph[node_id]
        if node.spec.effect == "view":
            return
        if node_id not in self._binding.values:
            raise BackendError(f"{node} isn't in split {self._split.index}")
        values = {s: self._value(self._graph[s]) for s in node.sources}
        result = compute(node, self._graph, values)
        if node.spec.writes is None:
            self._value(node)[...] = result

    def listing(self, nodes: Container[int] | None = None) -> list[str]:
        """One line per node, with where it and its operands lie."""
        return [self._line(self._graph[n]) for n in self._split.nodes if nodes is None or n in nodes]

    def _line(self, node: Node) -> str:
        operands = ", ".join(f"{name}={self._place(source)}" for name, source in node.operands(self._graph))
        return f"{self._place(node)} = {node.op}({operands})"

    def _place(self, node: Node) -> str:
        ref = self._binding.values.get(node.id)
        return str(node) if ref is None else f"{node}@b{ref.buffer}+{ref.offset:#x}"

    def _value(self, node: Node) -> Array:
        """The node's current value in storage form, cut to the actual rows."""
        if node.id in self._weights:
            return self._weights[node.id]
        counts = self._buffers.window(self._binding.n_rows, N_ROWS_TYPE)
        rows = None if node.type.rows is None else int(counts[0 if node.type.rows == "token" else 1])
        return self._buffers.window(self._binding.values[node.id], node.type, rows)
