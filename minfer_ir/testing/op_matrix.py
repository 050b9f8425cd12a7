"""The op matrix: every variant of every op run on a backend and held to the op's numpy reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from minfer_ir.dtypes import I32, U8
from minfer_ir.evaluate import decoded, encoded
from minfer_ir.graph import Node
from minfer_ir.memory.window import span_bytes
from minfer_ir.ops import OPS
from minfer_ir.opspec import Array, Op
from minfer_ir.runtime.backend import Backend, Binding, BufRef, Split
from minfer_ir.testing.tolerances import Held, Tolerance, difference, tolerance_on
from minfer_ir.testing.values import draw_operand
from minfer_ir.testing.variants import Variant, variant_graph, variants
from minfer_ir.types import RowAxis, TensorType

Verdict = Literal["PASS", "REFUSED", "FAIL"]

GUARD = 64
"""Bytes before and behind every value that no kernel may touch."""
POISON = 0xFF
"""Every byte that wasn't given a value: NaN as a float, -1 as an integer."""
GUARDED = 0xA5
"""Every byte of a guard: what is read where nothing was given must not look the same when it's written there."""
N_ROWS_TYPE = TensorType((2,), I32)


@dataclass(frozen=True, slots=True)
class Cell:
    """What came of one variant on one backend; `detail` is the reason, empty for PASS."""

    backend: str
    variant: Variant
    verdict: Verdict
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.verdict} {self.backend}: {self.variant}" + (f": {self.detail}" if self.detail else "")


def run_matrix(backend: Backend, ops: Iterable[Op] | None = None, seed: int = 0) -> Iterator[Cell]:
    """A cell for every variant of every op (all of the registry by default) that isn't a leaf."""
    for op in OPS.values() if ops is None else ops:
        if op.effect != "leaf":
            for variant in variants(op):
                yield run_variant(backend, variant, seed)


def run_variant(backend: Backend, variant: Variant, seed: int = 0) -> Cell:
    """Run one variant.

    FAIL means: refused or raised after `supports` agreed, a wrong value, an element left unwritten, an operand changed,
    or a byte touched outside the result.
    """
    refusal = _refusal(backend, variant)
    if refusal is not None:
        return Cell(backend.name, variant, "REFUSED", refusal)
    bench = Bench(backend, variant, np.random.default_rng(seed))
    try:
        problem = bench.run()
    except Exception as error:  # a kit reports what a backend under test does, whatever it raises
        problem = f"{type(error).__name__}: {error}"
    finally:
        bench.close()
    return Cell(backend.name, variant, "FAIL" if problem else "PASS", problem or "")


def _refusal(backend: Backend, variant: Variant) -> str | None:
    if variant.layout == "strided" and backend.capabilities.layouts == "contiguous":
        return "its kernels walk contiguous operands only"
    return backend.supports(variant.op.name, variant.attrs, variant.out, variant.operands)


class Bench:
    """One variant on one backend: buffers, values, the program, the comparison."""

    def __init__(self, backend: Backend, variant: Variant, rng: np.random.Generator) -> None:
        self.backend, self.variant = backend, variant
        self.graph, self.operands = variant_graph(variant)
        self.node = self.graph.nodes[-1]
        self.values = {
            i: draw_operand(rng, variant.op.name, slot.name, kind, variant.ints.get(slot.name))
            for i, (slot, kind) in zip(self.operands, variant.slots, strict=True)
        }
        self.n_rows: dict[RowAxis, int] = {k.rows: k.shape[0] for k in variant.operands if k.rows is not None}
        axis = variant.row_axis
        if variant.layout == "ragged" and axis is not None:
            self.n_rows[axis] -= 1
        self.refs: dict[int, BufRef] = {}
        self.weights: dict[int, int] = {}
        self.result: Array | None = None
        """What the backend computed, in storage form, once it ran."""
        self._buffers: list[int] = []

    def run(self) -> str | None:
        """None, or what is wrong."""
        expected = self._expected()
        self._place_values()
        counts = BufRef(self._allocate(8), GUARD, 8, (4,))
        n_rows = [self.n_rows.get(axis, 0) for axis in ("token", "output")]
        self.backend.write(counts, np.array(n_rows, np.int32))
        reads = tuple(i for i in self.operands if not self.graph[i].is_leaf())
        split = Split(0, self.backend.name, (self.node.id,), reads)
        binding = Binding(self.refs, self.weights, counts)
        before = self._outside()
        self.backend.compile(self.graph, split, binding).run()
        if not all(np.array_equal(a, b) for a, b in zip(before, self._outside(), strict=True)):
            return "bytes outside the result changed: an operand, a guard, or a row beyond the actual ones"
        actual = self.result = self._read(self.node)
        held = Held(self.variant.op, self.variant.attrs, self.node.type, self._numbers())
        return difference(held, expected, actual, self._tolerance())

    def _tolerance(self) -> Tolerance:
        return tolerance_on(self.backend.capabilities, self.variant.op, self.variant.operands)

    def close(self) -> None:
        """Give the buffers back."""
        for buffer in self._buffers:
            self.backend.free(buffer)

    def _actual(self, kind: TensorType) -> int:
        """Actual rows of a value, or all of axis 0 when that isn't a bucket."""
        return kind.shape[0] if kind.rows is None else self.n_rows[kind.rows]

    def _cut(self, node: Node, value: Array) -> Array:
        return value if node.type.rows is None else value[: self._actual(node.type)]

    def _numbers(self) -> list[Array]:
        """The operands as the reference takes them."""
        cut = [(self.graph[i].type, self._cut(self.graph[i], v)) for i, v in self.values.items()]
        stored = self.variant.op.stored
        slots = [slot.name for slot, _ in self.variant.slots]
        return [v if name in stored else decoded(kind, v) for name, (kind, v) in zip(slots, cut, strict=True)]

    def _expected(self) -> Array:
        numbers = [n.copy() for n in self._numbers()]
        result: Array = self.variant.op.reference(self.variant.attrs, *numbers)
        return encoded(self.node.type, result)

    def _place_values(self) -> None:
        for i, value in self.values.items():
            node = self.graph[i]
            if node.op == "weight":
                self.weights[i] = self._register(node, value)
                continue
            self._bind(node)
            self.backend.write(self.refs[i], self._cut(node, value))
        if self.variant.target is not None:
            self.refs[self.node.id] = self.refs[self.node.operand(self.graph, self.variant.target).id]
        else:
            self._bind(self.node)

    def _register(self, node: Node, value: Array) -> int:
        rows = value.reshape(-1, value.shape[-1])
        uses = frozenset({self.variant.op.name})
        return self.backend.register_weight(node.name, node.attrs.dtype, node.type.shape, [rows], uses)

    def _bind(self, node: Node) -> None:
        """A window of its owner's buffer, which is allocated on first sight."""
        owner = self.graph[self.graph.owner(node.id)]
        if owner.id not in self.refs:
            self.refs[owner.id] = self._window(owner, self._allocate(owner.type.nbytes), GUARD)
        offset = self.refs[owner.id].offset
        view = node.view
        while view is not None:
            offset += view.offset
            view = self.graph[view.source].view
        self.refs[node.id] = self._window(node, self.refs[owner.id].buffer, offset)

    def _window(self, node: Node, buffer: int, offset: int) -> BufRef:
        return BufRef(buffer, offset, span_bytes(node.type, node.strides, 0), node.strides)

    def _allocate(self, nbytes: int) -> int:
        size = nbytes + 2 * GUARD
        buffer = self.backend.allocate(size)
        self._buffers.append(buffer)
        image = np.full(size, GUARDED, np.uint8)
        image[GUARD : GUARD + nbytes] = POISON
        self.backend.write(_bytes_of(buffer, size), image)
        return buffer

    def _read(self, node: Node) -> Array:
        n_rows = self._actual(node.type) if node.type.rows else None
        return self.backend.read(self.refs[node.id], node.type, n_rows)

    def _outside(self) -> list[Array]:
        """Every buffer's bytes, those of the result's actual rows blanked."""
        owners = {self.graph.owner(i) for i in self.refs}
        result = self.refs[self.node.id]
        images: list[Array] = []
        for owner in sorted(owners):
            size = self.graph[owner].type.nbytes + 2 * GUARD
            ref = self.refs[owner]
            image = self.backend.read(_bytes_of(ref.buffer, size), TensorType((size,), U8))
            if ref.buffer == result.buffer and self.node.spec.effect != "view":
                kind = self.node.type
                written = kind.nbytes // kind.shape[0] * self._actual(kind)
                image[result.offset : result.offset + written] = 0
            images.append(image)
        return images


def _bytes_of(buffer: int, nbytes: int) -> BufRef:
    return BufRef(buffer, 0, nbytes, (1,))


def count_verdicts(cells: Sequence[Cell]) -> dict[Verdict, int]:
    """How many cells of each verdict."""
    verdicts: tuple[Verdict, ...] = ("PASS", "REFUSED", "FAIL")
    return {v: sum(c.verdict == v for c in cells) for v in verdicts}
