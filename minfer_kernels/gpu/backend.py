"""The GPU backend: plans become lists of Triton launches over torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal

import torch

from minfer_ir import plugins
from minfer_ir.formats.base import Bytes, Format
from minfer_ir.graph import Graph
from minfer_ir.ops import OPS
from minfer_ir.opspec import WEIGHT_TYPES, Array
from minfer_ir.runtime.backend import LAUNCH_GROUPS, BackendError, Binding, BufRef, Capabilities, MemoryInfo, Split
from minfer_ir.runtime.probe import Probe
from minfer_ir.types import Shape, TensorType
from minfer_kernels.gpu.capture import CAPTURE_SITES, Capture, CaptureIdentity
from minfer_kernels.gpu.device import Device, device_for
from minfer_kernels.gpu.emit import LAUNCH_SITES, REFUSALS, emitter_of
from minfer_kernels.gpu.emit.products import MOST_ROWS, activation_format, in_turns
from minfer_kernels.gpu.emitter import Emitter
from minfer_kernels.gpu.groups import emit_nodes, need, runs_of
from minfer_kernels.gpu.kernels.attention.choices import DEFAULT, AttentionOptions
from minfer_kernels.gpu.launch import SITE_PREFIX, Launch
from minfer_kernels.gpu.moves import MOVE_SITES
from minfer_kernels.gpu.moves import copy_cells as move_cells
from minfer_kernels.gpu.scratch import Dealer, Need, Shapes
from minfer_kernels.gpu.tables import RopeTables
from minfer_kernels.gpu.timing import LaunchTimes, run_timed
from minfer_kernels.gpu.transfers import Download, Transfers
from minfer_kernels.gpu.waits import Waits
from minfer_kernels.gpu.weights import GpuWeight, make_weight, weight_bytes
from minfer_kernels.tensors.backend import TensorBackend
from minfer_kernels.tensors.buffers import from_numpy

CALL_SITES = (*(SITE_PREFIX + site for site in (*LAUNCH_SITES, *MOVE_SITES)), *CAPTURE_SITES, "memory.query")
"""What a probe must know: every launch, by the place in the code, and what is done around launches."""


Activations = Literal["8-bit", "8-bit-all", "f16"]
ALL_ROWS = 1 << 30
"""More rows than any step has."""


def capabilities(activations: Activations, attention: AttentionOptions, invariant: bool = False) -> Capabilities:
    """What the kernels take. Weights aren't stacked: few rows run side by side in one launch without."""
    halves_from = None if invariant or activations == "8-bit-all" else MOST_ROWS + 1
    formats = {fmt: "f32" if activations == "f16" else activation_format(fmt) for fmt in WEIGHT_TYPES}
    return Capabilities(
        activation_formats=formats,
        kv_types=("f32", "f16", "q8_0"),
        window_modes=("causal", "span", "map"),
        layouts="rows",
        checks_weights=True,
        one_weight_form=True,
        most_quantized_rows=None if halves_from is None else MOST_ROWS,
        half_products_from=1 if activations == "f16" else halves_from,
        half_attention_from=None if invariant else attention.split_rows + 1,
    )


class GpuBackend(TensorBackend):
    """Owns device buffers and weights. `device` is a CUDA device, or the CPU under Triton's interpreter.

    `activations`: how products read theirs where the weight is quantized. "8-bit": up to 16 rows as 8-bit blocks, more
    as float32 rounded to float16; "8-bit-all": 8-bit blocks always; "f16": float16 always. `capture`: replay programs
    as CUDA graphs, where the device has them. `async_copies`: copy between host and device without waiting. `on`
    replaces what the runtime asks of the device; `waits` bounds what is waited for.
    `attention`: which kernels attend. `invariant`: all rows take the kernels of few rows, products 16 at a time; a
    token's logits then have the same bits whatever is computed with it and however its prompt was cut.
    """

    name = "gpu"

    def __init__(
        self,
        device: torch.device,
        activations: Activations = "8-bit",
        capture: bool = True,
        async_copies: bool = True,
        on: Device | None = None,
        waits: Waits | None = None,
        attention: AttentionOptions = DEFAULT,
        invariant: bool = False,
    ) -> None:
        self.on = on or device_for(device)
        super().__init__(self.on.place)
        self.capabilities = capabilities(activations, attention, invariant)
        self.attention = replace(attention, split_rows=ALL_ROWS) if invariant else attention
        self.invariant = invariant
        self.captures = capture and self.on.captures
        self.transfers = Transfers(self.on, waits or Waits(), async_copies)
        self.call_sites = (*CALL_SITES, *(SITE_PREFIX + site for site in plugins.launch_sites(self.name)))
        self.probe = Probe((), self.call_sites)
        self._weights: list[GpuWeight] = []
        self._tables = RopeTables(self.device)
        self._counters = torch.zeros(0, dtype=torch.int32, device=self.device)

    def watch(self, probe: Probe) -> None:
        """Report to an engine's probe."""
        self.probe = probe

    def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
        """None, or why no kernel takes these types."""
        if op in OPS and OPS[op].effect in ("leaf", "view"):
            return None
        if emitter_of(op) is None:
            return "no kernel"
        if reason := self._float_product(op, operands):
            return reason
        if op not in REFUSALS:
            return None
        return REFUSALS[op](attrs, out, in_turns(op, operands) if self.invariant else tuple(operands))

    def _float_product(self, op: str, operands: Sequence[TensorType]) -> str | None:
        """Why a product of few rows doesn't read floats, where it was set up to read 8-bit blocks."""
        if op not in OPS or not OPS[op].is_product or operands[0].dtype.name != "f32":
            return None
        wanted = {self.capabilities.activation_formats[w.dtype.name] for w in OPS[op].weight_operands(operands)}
        many = operands[0].shape[0] > MOST_ROWS and not self.invariant
        if many or wanted == {"f32"}:
            return None
        which = "all products" if self.invariant else f"products of up to {MOST_ROWS} rows"
        return f"{which} read {' and '.join(sorted(wanted))} activations here, not f32"

    def memory(self) -> MemoryInfo:
        """Of the device: reported, or what the query failed with."""
        try:
            self.probe.hit("memory.query")
        except RuntimeError as error:
            return MemoryInfo(None, None, f"{self.device}: {error}")
        return self.on.memory()

    def write(self, ref: BufRef, data: Array) -> None:
        """Copy host rows into a window; on its way when this returns."""
        self.write_all([(ref, data)])

    def write_all(self, writes: Sequence[tuple[BufRef, Array]]) -> None:
        """Copy several at once, by way of one host buffer."""
        self.transfers.upload([(self.buffers.front(ref, data), from_numpy(data)) for ref, data in writes])

    def read(self, ref: BufRef, kind: TensorType, n_rows: int | None = None, copy: bool = True) -> Array:
        """Copy rows out of a window."""
        return self.transfers.download(self.buffers.window(ref, kind, n_rows), "gpu.read").result()

    def start_read(self, ref: BufRef, kind: TensorType, n_rows: int | None = None) -> Download:
        """Begin to copy rows out of a window."""
        return self.transfers.download(self.buffers.window(ref, kind, n_rows), "gpu.staging")

    def copy_cells(self, ref: BufRef, row_bytes: int, moves: Sequence[tuple[int, int, int]]) -> None:
        """Move KV rows, as if every row were read before any is written."""
        with self.on.active():
            move_cells(self.buffers.cells(ref, row_bytes, moves), moves, self.probe)

    def register_weight(
        self, key: str, dtype: Format, shape: Shape, parts: Sequence[Bytes], uses: frozenset[str]
    ) -> int:
        """Cut the weight into planes on the device; NonFiniteWeightError for a NaN or infinite scale."""
        self._weights.append(make_weight(key, dtype, shape, parts, self.device))
        return len(self._weights) - 1

    def weight_bytes(self) -> int:
        """Bytes of the weights, of the tables of angles and of counters."""
        return sum(w.nbytes for w in self._weights) + self._tables.nbytes + 4 * len(self._counters)

    def weight_need(self, dtype: Format, shape: Shape, uses: frozenset[str]) -> int:
        """Bytes of the weight's planes."""
        return weight_bytes(dtype, shape)

    def table_need(self, graph: Graph) -> int:
        """Bytes of the angles of rope nodes that have no table yet, and of more counters."""
        own = tuple(n.id for n in graph if n.backend == self.name and not n.is_leaf())
        counters = need(self._shapes(graph), Split(0, self.name, own, ())).counters
        return self._tables.need(graph, self.name) + 4 * max(0, counters - len(self._counters))

    def scratch_need(self, graph: Graph, split: Split) -> int:
        """Bytes that the launches of the split write beside values: parts of attention, unfinished products."""
        return need(self._shapes(graph), split).scratch

    def compile(self, graph: Graph, split: Split, binding: Binding) -> GpuProgram:
        """The launches of the split."""
        weights = {node: self._weights[w] for node, w in binding.weights.items()}
        shapes = self._shapes(graph)
        dealt = self._dealer(need(shapes, split), binding.scratch)
        emitter = Emitter(shapes, binding, self.buffers, weights, self._tables, dealt)
        spans = emit_nodes(emitter, graph, split)
        windows = _kv_windows(graph, split, binding)
        grouped = any(group is not None for group, _ in runs_of(graph, split))
        alone = replace(split, groups_off=frozenset(LAUNCH_GROUPS))
        apart = partial(self.compile, graph, alone, binding) if grouped else None
        return GpuProgram(self, graph, split, emitter.launches, spans, windows, apart, weights)

    def lasting(self, graph: Graph, split: Split) -> tuple[tuple[int, int], ...]:
        """The groups that store a later member's rows while rows of the first are still computed."""
        grouped = [members for group, members in runs_of(graph, split) if group is not None and group.reads_longer]
        return tuple((members[0].id, members[-1].id) for members in grouped)

    def _shapes(self, graph: Graph) -> Shapes:
        return Shapes(graph, self.device, self.attention, self.invariant, self.on.target)

    def _dealer(self, wanted: Need, planned: BufRef | None) -> Dealer:
        """What launches take beside values: planned, or a program's own; counters are one for all programs.

        Older programs still point to the counters that more of them replace.
        """
        if wanted.counters > len(self._counters):
            self._counters = torch.zeros(wanted.counters, dtype=torch.int32, device=self.device)
        if planned is None:
            return Dealer(wanted, torch.empty(wanted.scratch, dtype=torch.uint8, device=self.device), self._counters)
        held = self.buffers.bytes_of(planned.buffer)[planned.offset : planned.offset + planned.length]
        return Dealer(wanted, held, self._counters)

    def identity(self, regions: Sequence[tuple[str, BufRef]]) -> CaptureIdentity:
        """What a graph captured now over these KV regions, (type, window) each, would stand on."""
        layout = tuple((kind, self.buffers.bytes_of(ref.buffer).data_ptr() + ref.offset) for kind, ref in regions)
        return CaptureIdentity(self.buffers.generation, layout)


class GpuProgram:
    """Launches, and which of them belong to which node.

    `spans` has [first, stop) of every node; of nodes that one launch serves together, the first has the launches and
    those that follow have none. `weights` are those that it reads, by leaf.
    """

    def __init__(
        self,
        backend: GpuBackend,
        graph: Graph,
        split: Split,
        launches: list[Launch],
        spans: dict[int, tuple[int, int]],
        regions: Sequence[tuple[str, BufRef]] = (),
        apart: Callable[[], GpuProgram] | None = None,
        weights: Mapping[int, GpuWeight] | None = None,
    ) -> None:
        self._backend, self._graph, self._split = backend, graph, split
        self._launches, self.spans, self.weights = launches, spans, weights or {}
        self._timed: list[LaunchTimes] | None = None
        self._stepped = None if apart is None else cache(apart)
        name = f"split {split.index} ({len(launches)} launches)"
        identity = partial(backend.identity, regions)
        self.capture = Capture(name, self._launch_all, backend.on.capture, identity, lambda: backend.probe)

    @property
    def launches(self) -> Sequence[Launch]:
        """All launches, in the order in which they run."""
        return self._launches

    def run(self) -> None:
        """All launches in order, or their captured graph."""
        with self._backend.on.active():
            if self._timed is not None:
                self._timed.append(run_timed(self._launches, self._backend.probe, self._backend.device))
            elif self._backend.captures and self._launches:
                self.capture.run()
            else:
                self._launch_all()

    @contextmanager
    def timed(self) -> Iterator[list[LaunchTimes]]:
        """While this is open every run goes launch by launch, not as a captured graph, and its times are added."""
        self._timed = []
        try:
            yield self._timed
        finally:
            self._timed = None

    def run_node(self, node_id: int) -> None:
        """The launches of one node, without groups, some of which skip values in between; a view has none."""
        if self._graph[node_id].spec.effect == "view":
            return
        if self._stepped is not None:
            self._stepped().run_node(node_id)
            return
        if node_id not in self.spans:
            raise BackendError(f"{self._graph[node_id]} isn't in split {self._split.index}")
        first, stop = self.spans[node_id]
        with self._backend.on.active():
            for launch in self._launches[first:stop]:
                launch.run(self._backend.probe)

    def listing(self, nodes: Container[int] | None = None) -> list[str]:
        """One line per launch."""
        return [
            f"{self._launches[i].node}: {self._launches[i]}"
            for node, (first, stop) in self.spans.items()
            if nodes is None or node in nodes
            for i in range(first, stop)
        ]

    def _launch_all(self) -> None:
        for launch in self._launches:
            launch.run(self._backend.probe)


def _kv_windows(graph: Graph, split: Split, binding: Binding) -> list[tuple[str, BufRef]]:
    """The KV regions that the split's nodes touch: (cell type, window)."""
    owners = {graph.owner(source) for node in split.nodes for source in graph[node].sources}
    regions = sorted(o for o in owners if graph[o].op == "kv")
    return [(graph[o].type.dtype.name, binding.values[o]) for o in regions if o in binding.values]
