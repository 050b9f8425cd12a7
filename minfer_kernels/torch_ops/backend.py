"""The torch backend: every declared op in torch ops over buffers of one torch device."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from minfer_ir.dtypes import I32
from minfer_ir.formats.base import Bytes, Format
from minfer_ir.graph import Graph, Node
from minfer_ir.ops import OPS
from minfer_ir.ops.fused_rope import plain_rope
from minfer_ir.ops.leaves import KV_TYPES
from minfer_ir.ops.rope import RopeAttrs
from minfer_ir.opspec import WEIGHT_TYPES
from minfer_ir.runtime.backend import (
    BackendError,
    Binding,
    Capabilities,
    MemoryInfo,
    NonFiniteWeightError,
    Split,
)
from minfer_ir.runtime.host import host_memory
from minfer_ir.types import Shape, TensorType
from minfer_kernels.tensors.backend import TensorBackend
from minfer_kernels.tensors.buffers import TensorBuffers
from minfer_kernels.torch_ops.blocks import decode, encode
from minfer_kernels.torch_ops.functions import run
from minfer_kernels.torch_ops.kit import Kit
from minfer_kernels.torch_ops.limits import LIMITS, check_windows, device_named

N_ROWS_TYPE = TensorType((2,), I32)


class TorchBackend(TensorBackend):
    """Runs compositions of torch ops; activations stay float32, weights are decoded when they are taken in.

    `device` as torch names it; raises DeviceError for one that isn't there. Matrices become float32 on the CPU and
    float16 elsewhere (`LIMITS`), unless `weights` says.
    """

    name = "torch"
    capabilities = Capabilities(
        activation_formats=dict.fromkeys(WEIGHT_TYPES, "f32"),
        kv_types=KV_TYPES,
        window_modes=("causal", "span", "map"),
        layouts="any",
        weight_concat=True,
        checks_weights=True,
    )

    def __init__(self, device: str = "cpu", weights: torch.dtype | None = None) -> None:
        super().__init__(device_named(device))
        check_windows(self.device)
        self.capabilities = replace(self.capabilities, kv_types=LIMITS[self.device.type].kv_types)
        self._matrix_type = weights or LIMITS[self.device.type].weights
        self._weights: list[torch.Tensor] = []
        self._kit = Kit(self.device)

    def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
        """Everything that is declared."""
        return None if op in OPS else f"{op} isn't a declared op"

    def memory(self) -> MemoryInfo:
        """Of the device; unknown where torch has no way to ask, or the query fails."""
        if self.device.type == "cpu":
            return host_memory()
        try:
            available, total = torch.get_device_module(self.device).mem_get_info(self.device)
        except (AttributeError, RuntimeError):
            return MemoryInfo(None, None)
        return MemoryInfo(total, available)

    def register_weight(
        self, key: str, dtype: Format, shape: Shape, parts: Sequence[Bytes], uses: frozenset[str]
    ) -> int:
        """Decode and stack the parts; NonFiniteWeightError for a NaN or infinite scale."""
        if any(dtype.find_nonfinite(p) is not None for p in parts):
            raise NonFiniteWeightError(key)
        rows = [torch.from_numpy(dtype.decode(p).reshape(-1, shape[-1]).copy()) for p in parts]
        held = torch.cat([r.to(self._type_of(shape)) for r in rows]).reshape(shape)
        self._weights.append(held.to(self.device))
        return len(self._weights) - 1

    def weight_bytes(self) -> int:
        """Bytes of the decoded weights and the tables of angles."""
        return sum(w.numel() * w.element_size() for w in self._weights) + self._kit.nbytes

    def weight_need(self, dtype: Format, shape: Shape, uses: frozenset[str]) -> int:
        """Bytes of the decoded weight."""
        return self._type_of(shape).itemsize * math.prod(shape)

    def table_need(self, graph: Graph) -> int:
        """Bytes of the angles of rope nodes that have no table yet, or have frequency factors of their own."""
        wanted = {(plain_rope(node.attrs), factors) for node, factors in self._ropes(graph)}
        missing = [attrs for attrs, factors in wanted if factors is not None or not self._kit.has_table(attrs, None)]
        return sum(4 * attrs.max_positions * attrs.dims for attrs in missing)

    def compile(self, graph: Graph, split: Split, binding: Binding) -> TorchProgram:
        """Ops look their operands up as they run; only tables of angles are made."""
        weights = {node: self._weights[w] for node, w in binding.weights.items()}
        for node, factors in self._ropes(graph):
            if node.id in split.nodes:
                self._kit.prepare(node.attrs, None if factors is None else weights[factors])
        return TorchProgram(graph, split, binding, self.buffers, weights, self._kit)

    def _ropes(self, graph: Graph) -> Iterator[tuple[Node, int | None]]:
        """This backend's nodes that rotate by a table that can be kept, and the weight leaf of frequency factors."""
        for node in graph:
            if isinstance(node.attrs, RopeAttrs) and node.backend == self.name:
                factors = dict(node.operands(graph)).get("factors")
                if factors is None or factors.op == "weight":
                    yield node, None if factors is None else factors.id

    def _type_of(self, shape: Shape) -> torch.dtype:
        """Vectors (norms, biases) stay float32."""
        return self._matrix_type if len(shape) > 1 else torch.float32


class TorchProgram:
    """Runs the split's nodes one by one. Every run reads the numbers of rows back from the device once."""

    def __init__(
        self,
        graph: Graph,
        split: Split,
        binding: Binding,
        buffers: TensorBuffers,
        weights: dict[int, torch.Tensor],
        kit: Kit,
    ) -> None:
        self._graph, self._split, self._binding, self._kit = graph, split, binding, kit
        self._buffers, self._weights = buffers, weights

    @torch.inference_mode()
    def run(self) -> None:
        """Every node in order."""
        counts = self._counts()
        for node in self._split.nodes:
            self._run(self._graph[node], counts)

    @torch.inference_mode()
    def run_node(self, node_id: int) -> None:
        """Compute one node and copy the result into its window; views have nothing to do."""
        node = self._graph[node_id]
        if node.spec.effect != "view" and node_id not in self._binding.values:
            raise BackendError(f"{node} isn't in split {self._split.index}")
        self._run(node, self._counts())

    def listing(self, nodes: Container[int] | None = None) -> list[str]:
        """One line per node that runs."""
        shown = (self._graph[n] for n in self._split.nodes if nodes is None or n in nodes)
        return [f"{n} = {n.op}({', '.join(str(self._graph[s]) for s in n.sources)})" for n in shown if not _is_view(n)]

    def _counts(self) -> dict[str, int]:
        token, output = self._buffers.window(self._binding.n_rows, N_ROWS_TYPE).tolist()
        return {"token": token, "output": output}

    def _run(self, node: Node, counts: dict[str, int]) -> None:
        if _is_view(node):
            return
        named = zip(node.spec.operands, node.sources, strict=False)
        operands = [self._operand(self._graph[s], counts, slot.name in node.spec.stored) for slot, s in named]
        result = run(self._kit, node.op, node.attrs, *operands)
        if node.spec.writes is not None:
            return
        window = self._window(node, counts)
        window.copy_(encode(node.type.dtype, result) if isinstance(node.type.dtype, Format) else result)

    def _operand(self, node: Node, counts: dict[str, int], as_stored: bool) -> torch.Tensor:
        if node.id in self._weights:
            return self._weights[node.id]
        window, fmt = self._window(node, counts), node.type.dtype
        return decode(fmt, window) if isinstance(fmt, Format) and not as_stored else window

    def _window(self, node: Node, counts: dict[str, int]) -> torch.Tensor:
        rows = None if node.type.rows is None else counts[node.type.rows]
        return self._buffers.window(self._binding.values[node.id], node.type, rows)


def _is_view(node: Node) -> bool:
    return node.spec.effect == "view"
