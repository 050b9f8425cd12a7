"""The CPU backend: plans become tapes of Numba kernels that native threads walk."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_ir.builder import leaf_key
from minfer_ir.formats.base import Bytes, Format
from minfer_ir.graph import Graph, Node
from minfer_ir.ops.fused_rope import plain_rope
from minfer_ir.ops.rope import RopeAttrs, rope_table
from minfer_ir.opspec import WEIGHT_TYPES
from minfer_ir.runtime.backend import BackendError, Binding, Capabilities, Split
from minfer_ir.runtime.host import ALIGNMENT, HostBackend
from minfer_ir.types import Shape, TensorType
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.emit import emitter_of
from minfer_kernels.cpu.emitter import Emitter
from minfer_kernels.cpu.limits import why_not
from minfer_kernels.cpu.runner.largest import MOST, Largest
from minfer_kernels.cpu.runner.tape import Tape, TapeBuilder
from minfer_kernels.cpu.runner.threads import ThreadPool
from minfer_kernels.cpu.runner.timing import TapeTimes, TimedTape
from minfer_kernels.cpu.weights.arena import WeightArena
from minfer_kernels.cpu.weights.held import CpuWeight, make_weight, weight_bytes
from minfer_kernels.cpu.weights.layouts import activation_format
from minfer_kernels.cpu.weights.packer import WeightPacker
from minfer_kernels.cpu.weights.packing import PackedWeight

PLENTY = 3
"""Times the expected weights that must be available before memory is taken ahead of them."""


class CpuBackend(HostBackend):
    """Owns host buffers, packed weights, rope tables and the worker threads; close it when done.

    `choose_threads` says before every step how many of the `n_threads` take part; None: all of them.
    """

    name = "cpu"
    capabilities = Capabilities(
        activation_formats={fmt: activation_format(fmt) for fmt in WEIGHT_TYPES},
        kv_types=("f32", "f16", "q8_0"),
        window_modes=("causal", "span", "map"),
        layouts="rows",
        weight_concat=True,
        checks_weights=True,
    )

    def __init__(self, library: KernelLibrary, n_threads: int, choose_threads: Callable[[], int] | None = None) -> None:
        super().__init__()
        self.library = library
        self.n_threads = n_threads
        self._choose_threads = choose_threads
        self._weights: list[CpuWeight] = []
        self._arena = WeightArena()
        self._scratch: list[Bytes] = []
        self._shared: list[Bytes] = []
        self._tables: dict[tuple[RopeAttrs, int | None], NDArray[np.float32]] = {}

    @cached_property
    def threads(self) -> ThreadPool:
        """The worker threads, started with the first program: looking at a plan needs none."""
        return ThreadPool(self.library, self.n_threads, self._choose_threads)

    @cached_property
    def _packer(self) -> WeightPacker:
        return WeightPacker(self.library, self.threads, self._arena)

    def expect_weights(self, nbytes: int) -> None:
        """Begin to find the memory for about `nbytes` of weights, which come soon, where there is plenty."""
        available = self.memory().available
        if available is not None and available > PLENTY * nbytes:
            self._arena.expect(nbytes)

    def supports(self, op: str, attrs: Any, out: TensorType, operands: Sequence[TensorType]) -> str | None:
        """None, or why no kernel takes these types."""
        return why_not(op, attrs, out, operands, self.n_threads)

    def register_weight(
        self, key: str, dtype: Format, shape: Shape, parts: Sequence[Bytes], uses: frozenset[str]
    ) -> int:
        """Pack, copy or decode the weight, as its uses need; NonFiniteWeightError for a NaN or infinite scale.

        Weights are packed several at once, the last of them when a program is compiled, which then raises this.
        """
        self._weights.append(make_weight(key, dtype, shape, parts, uses, self._packer))
        return len(self._weights) - 1

    def weight_bytes(self) -> int:
        """Bytes of the weights and of the rope tables made from them."""
        return sum(w.nbytes for w in self._weights) + sum(t.nbytes for t in self._tables.values())

    def weight_need(self, dtype: Format, shape: Shape, uses: frozenset[str]) -> int:
        """Bytes of the forms that the uses need."""
        return weight_bytes(dtype, shape, uses, self.library.isa.lanes)

    def table_need(self, graph: Graph) -> int:
        """Bytes of the angles of rope nodes that have no table yet."""
        made = {(attrs, None if f is None else self._weights[f].key) for attrs, f in self._tables}
        ropes = [n for n in graph if isinstance(n.attrs, RopeAttrs) and n.backend == self.name]
        wanted = {(plain_rope(n.attrs), _factors_key(n, graph)) for n in ropes}
        return sum(4 * attrs.max_positions * attrs.dims for attrs, _ in wanted - made)

    def rope_table(self, attrs: RopeAttrs, factors: int | None) -> NDArray[np.float32]:
        """The angles for `attrs`, computed once; `factors` is the id of the frequency factors."""
        key = (attrs, factors)
        if key not in self._tables:
            self._tables[key] = rope_table(attrs, None if factors is None else self._weights[factors].values)
        return self._tables[key]

    def compile(self, graph: Graph, split: Split, binding: Binding) -> CpuProgram:
        """A tape for the split; compiles the kernels that aren't cached yet."""
        self._packer.finish()
        self._arena.settle()
        weights = {node: self._weights[w] for node, w in binding.weights.items()}
        emitter = Emitter(
            graph,
            binding,
            self.buffers,
            weights,
            TapeBuilder(self.library),
            self.rope_table,
            self._scratch_at,
            self._shared_at,
        )
        starts: dict[int, tuple[int, int]] = {}
        for node in (graph[n] for n in split.nodes):
            if node.spec.effect == "view":
                continue
            start = emitter.length
            _emit(emitter, node)
            starts[node.id] = (start, emitter.length)
        return CpuProgram(graph, split, emitter.finish(), starts, self.threads, emitter)

    def largest(self, n: int, k: int) -> Largest | None:
        """What looks for the k largest of the first n elements of a row; None where k is too many."""
        return Largest(self.library, n, k) if k <= MOST else None

    def _scratch_at(self, bytes_per_thread: int) -> int:
        """Scratch for every thread. A bigger block joins the smaller ones, which older programs still point to."""
        return _grown(self._scratch, bytes_per_thread * self.n_threads)

    def _shared_at(self, nbytes: int) -> int:
        """Memory that the threads of a call share; zero when it is new, and grown as scratch is."""
        return _grown(self._shared, nbytes)

    def close(self) -> None:
        """Stop the worker threads, where they were started."""
        self._arena.settle()
        if "threads" in self.__dict__:
            self._packer.forget()
            self.threads.close()

    def __enter__(self) -> CpuBackend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class CpuProgram:
    """A tape and which of its instructions belong to which node."""

    def __init__(
        self,
        graph: Graph,
        split: Split,
        tape: Tape,
        spans: dict[int, tuple[int, int]],
        threads: ThreadPool,
        emitter: Emitter,
    ) -> None:
        self._graph, self._split, self.tape, self._spans, self._threads = graph, split, tape, spans, threads
        self._keep = emitter
        self._record: Callable[[], None] | None = None

    def run(self) -> None:
        """Walk the tape: one native call."""
        if self._record is None:
            self._threads.run(self.tape)
        else:
            self._record()

    @contextmanager
    def timed(self) -> Iterator[list[TapeTimes]]:
        """While open, every `run` adds its times to the list. Compiles the kernels that read the clock."""
        tape, runs = TimedTape(self.tape, self._threads.library, self._threads.n_threads), list[TapeTimes]()
        self._record = lambda: runs.append(tape.run(self._threads))
        try:
            yield runs
        finally:
            self._record = None

    @property
    def spans(self) -> Mapping[int, tuple[int, int]]:
        """The instructions [first, stop) of every node that has any."""
        return self._spans

    def packed_weights(self) -> dict[int, PackedWeight]:
        """The weights that products of this program read, by leaf."""
        return {leaf: w.packed for leaf, w in self._keep.weights.items() if w.packed is not None}

    def run_node(self, node_id: int) -> None:
        """Walk one node's instructions; a view has none."""
        if self._graph[node_id].spec.effect == "view":
            return
        if node_id not in self._spans:
            raise BackendError(f"{self._graph[node_id]} isn't in split {self._split.index}")
        self._threads.run(self.tape, *self._spans[node_id])

    def listing(self, nodes: Container[int] | None = None) -> list[str]:
        """The tape, instruction by instruction, then the weights it reads and how they are laid out.

        An operand reads `name@bBUFFER+OFFSET`, a weight `name@wID`.
        """
        kept = [node for node in self._spans if nodes is None or node in nodes]
        leaves = dict.fromkeys(s for node in kept for s in self._graph[node].sources if s in self._keep.weights)
        weights = {self._keep.binding.weights[leaf]: self._keep.weights[leaf] for leaf in leaves}
        packed = {w.packed.layout.name: w.packed.layout for w in weights.values() if w.packed is not None}
        return [
            *(line for node in kept for line in self.tape.listing(*self._spans[node])),
            *(f"w{number} {weight}" for number, weight in weights.items()),
            *(f"layout {layout}" for layout in packed.values()),
        ]


def _factors_key(node: Node, graph: Graph) -> str | None:
    """The name of the weight that holds a rope node's frequency factors; None where it has none."""
    factors = dict(node.operands(graph)).get("factors")
    return None if factors is None else leaf_key(factors.attrs)


def _grown(blocks: list[Bytes], need: int) -> int:
    """The address of the last block, or of a bigger one that joins it where it is too small."""
    if not blocks or blocks[-1].nbytes < need:
        raw = np.zeros(need + ALIGNMENT, np.uint8)
        blocks.append(raw[-raw.ctypes.data % ALIGNMENT :])
    return blocks[-1].ctypes.data


def _emit(emitter: Emitter, node: Node) -> None:
    emit = emitter_of(node.op)
    if emit is None:
        raise BackendError(f"cpu: no kernel for {node} ({node.op})")
    emit(emitter, node)
