"""Insert what a backend needs around an op it can't run as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minfer_ir.graph import Node
from minfer_ir.ops import OPS
from minfer_ir.opspec import attrs_from_json
from minfer_ir.passes.base import Lowering, LoweringError
from minfer_ir.passes.rewriter import Rewriter
from minfer_ir.runtime.backend import Backend, Capabilities, describe
from minfer_ir.types import TensorType, element_type


@dataclass(frozen=True, slots=True)
class Legalize:
    """Quantize the activations of integer products, once for all of them that read a value; copy operands whose
    strides a backend's kernels don't walk.
    """

    name: str = "legalize"

    def run(self, state: Lowering) -> Lowering:
        """The graph that every backend can run as it stands; raises LoweringError where that isn't reached."""
        rewriter = Rewriter(state.graph)
        quantized: dict[tuple[int, str], int] = {}
        for node in state.graph:
            if node.is_leaf() or node.spec.effect == "view":
                continue
            capabilities = state.backends[node.backend or ""].capabilities
            _quantize_activations(rewriter, node, capabilities, quantized)
            _make_walkable(rewriter, node.id, capabilities)
        legal = state.with_graph(rewriter.finish())
        _check(legal)
        return legal


def activation_type(op: str, operands: Sequence[TensorType], capabilities: Capabilities) -> str | None:
    """The format that a product's activations must be quantized to on this backend; None when they are fine."""
    spec = OPS.get(op)
    if spec is None or not spec.is_product or operands[0].dtype.name != "f32":
        return None
    most = capabilities.most_quantized_rows
    if most is not None and operands[0].shape[0] > most:
        return None
    wanted = {capabilities.activation_formats.get(w.dtype.name, "f32") for w in spec.weight_operands(operands)}
    return None if len(wanted) > 1 or "f32" in wanted else wanted.pop()


def refusal(backend: Backend, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
    """Why `backend` can't run `op` on these types even after legalization, or None when it can."""
    wanted = activation_type(op, operands, backend.capabilities)
    if wanted is None:
        return backend.supports(op, attrs, out, operands)
    x, *others = operands
    quantized = TensorType(x.shape, element_type(wanted), x.rows)
    quantize = attrs_from_json(OPS["quantize_act"], {"dtype": wanted})
    return backend.supports("quantize_act", quantize, quantized, [x]) or backend.supports(
        op, attrs, out, [quantized, *others]
    )


def walkable(node: Node, layouts: str) -> bool:
    """Whether kernels that walk `layouts` can read the node's value where it lies."""
    if layouts == "any" or node.strides == node.type.strides:
        return True
    return layouts == "rows" and node.strides[1:] == node.type.strides[1:]


def _quantize_activations(
    rewriter: Rewriter, node: Node, capabilities: Capabilities, made: dict[tuple[int, str], int]
) -> None:
    operands = [rewriter.node(s).type for s in node.sources]
    wanted = activation_type(node.op, operands, capabilities)
    if wanted is None:
        return
    x = rewriter.node(node.sources[0])
    key = (x.id, f"{node.backend} {wanted}")
    if key not in made:
        made[key] = rewriter.add("quantize_act", (x.id,), {"dtype": wanted}, node, f"{x.name}.{wanted.lower()}").id
    rewriter.rebind(node.id, (made[key], *node.sources[1:]))


def _make_walkable(rewriter: Rewriter, node_id: int, capabilities: Capabilities) -> None:
    node = rewriter.nodes[node_id]
    sources: list[int] = []
    for source in map(rewriter.node, node.sources):
        if walkable(source, capabilities.layouts):
            sources.append(source.id)
        else:
            sources.append(rewriter.add("contiguous", (source.id,), {}, node, f"{source.name}.contiguous").id)
    rewriter.rebind(node_id, tuple(sources))


def _check(state: Lowering) -> None:
    for node in state.graph:
        if node.is_leaf() or node.spec.effect == "view":
            continue
        operands = [state.graph[s].type for s in node.sources]
        reason = state.backends[node.backend or ""].supports(node.op, node.attrs, node.type, operands)
        if reason is not None:
            raise LoweringError(f"{node.backend} can't run {describe(node, operands)}: {reason}")
