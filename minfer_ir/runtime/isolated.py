"""Nodes in isolation: what a node should give for the operands it really got."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from minfer_ir.evaluate import WeightSource, compute, weight_value
from minfer_ir.graph import Graph, Node
from minfer_ir.opspec import Array
from minfer_ir.runtime.backend import Backend, Binding, BufRef, Split
from minfer_ir.runtime.trace import Step


class Referee(Protocol):
    """Says what the value of a step should be."""

    def expected(self, step: Step, values: Mapping[int, Array]) -> Array | str:
        """The value in storage form, or why it can't be told; `values` as `operand_values` gives them."""
        ...


class ReferenceOps:
    """The ops' own numpy references."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def expected(self, step: Step, values: Mapping[int, Array]) -> Array | str:
        """The reference over the step's operands."""
        node = step.node
        if node.spec.writes is None:
            return compute(node, self._graph, values)
        region = node.operand(self._graph, node.spec.writes).id  # a store's reference writes into its operand
        return compute(node, self._graph, {**values, region: values[region].copy()})


class OnBackend:
    """Another backend: each node compiled on its own, over buffers that hold the step's operands.

    Weights are registered on the backend as they come and stay there. `inputs` are those of the forward.
    """

    def __init__(self, graph: Graph, weights: WeightSource, backend: Backend, inputs: Mapping[str, Array]) -> None:
        self._graph, self._weights, self._backend = graph, weights, backend
        self._counts = np.asarray(inputs["n_rows"], np.int32).reshape(2)

    def expected(self, step: Step, values: Mapping[int, Array]) -> Array | str:
        """What the backend's kernel gives; a view, which no kernel runs, by its reference."""
        node = step.node
        if node.spec.effect == "view":
            return compute(node, self._graph, values)
        refusal = self._backend.supports(node.op, node.attrs, node.type, [self._graph[s].type for s in node.sources])
        return refusal if refusal is not None else self._run(step)

    def _run(self, step: Step) -> Array:
        node, backend = step.node, self._backend
        buffers: dict[int, BufRef] = {}
        try:
            for source, value in step.operands.items():
                buffers[source] = self._buffer(self._graph[source])
                backend.write(buffers[source], value)
            counts = BufRef(backend.allocate(8), 0, 8, (4,))
            buffers[-1] = counts
            backend.write(counts, self._counts)
            target = node.spec.writes
            held = self._buffer(node) if target is None else buffers[node.operand(self._graph, target).id]
            buffers[node.id] = held
            split = Split(0, backend.name, (node.id,), ())
            backend.compile(self._graph, split, Binding(buffers, self._registered(node), counts)).run()
            return backend.read(held, node.type, len(step.value) if node.type.rows is not None else None)
        finally:
            for buffer in {ref.buffer for ref in buffers.values()}:
                backend.free(buffer)

    def _buffer(self, node: Node) -> BufRef:
        return BufRef(self._backend.allocate(node.type.nbytes), 0, node.type.nbytes, node.type.strides)

    def _registered(self, node: Node) -> dict[int, int]:
        leaves = [self._graph[s] for s in node.sources if self._graph[s].op in ("weight", "weight_concat")]
        return {leaf.id: self._register(leaf, node.op) for leaf in leaves}

    def _register(self, leaf: Node, use: str) -> int:
        parts = [self._weights.rows(key) for key in weight_keys(leaf)]
        return self._backend.register_weight(leaf.name, leaf.attrs.dtype, leaf.type.shape, parts, frozenset({use}))


def weight_keys(leaf: Node) -> tuple[str, ...]:
    """The registry names of a weight leaf, in stacking order."""
    return leaf.attrs.keys if leaf.op == "weight_concat" else (leaf.attrs.key,)


def operand_values(graph: Graph, step: Step, weights: WeightSource) -> dict[int, Array]:
    """Everything the step's node reads, by node id: its operands in storage form, weights decoded."""
    leaves = [s for s in dict.fromkeys(step.node.sources) if graph[s].op in ("weight", "weight_concat")]
    return dict(step.operands) | {leaf: weight_value(graph[leaf], weights) for leaf in leaves}
