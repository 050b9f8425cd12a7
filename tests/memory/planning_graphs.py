"""Random graphs for planning tests: aliases of every kind, stores, several backends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from minfer_ir.builder import GraphBuilder
from minfer_ir.dtypes import F32, I32, DType
from minfer_ir.evaluate import Weights
from minfer_ir.formats import format_named
from minfer_ir.graph import Graph, Node
from minfer_ir.opspec import Array, OpError
from minfer_ir.runtime.backend import Split

CELLS = 8
WIDTHS = (4, 8, 24, 96, 520, 1536)


@dataclass
class Case:
    """A graph with its splits and everything it needs to run."""

    graph: Graph
    splits: list[Split]
    inputs: dict[str, Array]
    weights: Weights
    regions: dict[str, Array] = field(default_factory=dict)


class Author:
    """Draws one graph; `values` are the float values that later nodes may read."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.b = GraphBuilder()
        self.t = draw(st.sampled_from((1, 2, 3, 5)))
        self.rng = np.random.default_rng(draw(st.integers(0, 2**16)))
        self.inputs: dict[str, Array] = {}
        self.weights = Weights()
        self.values: list[Node] = []
        self.regions: list[tuple[Node, Node]] = []
        self.count = 0

    def input(
        self, key: str, values: Array, dtype: DType, rows: str | None = "token", limit: int | None = None
    ) -> Node:
        self.inputs[key] = values.astype(dtype.storage)
        return self.b.input(key=key, shape=values.shape, dtype=dtype, rows=rows, limit=limit)

    def start(self) -> None:
        width = self.draw(st.sampled_from(WIDTHS))
        self.input("n_rows", np.array([self.t, self.t]), I32, None)
        self.positions = self.input("positions", np.arange(self.t), I32)
        self.cells = self.input("cells", self.rng.permutation(CELLS)[: self.t], I32)
        self.window = self.input("window", np.stack([np.zeros(self.t), np.arange(self.t) + 1], 1), I32)
        self.values.append(self.input("x", self.rng.standard_normal((self.t, width)), F32))

    def weight(self, *shape: int) -> Node:
        key = f"w{'x'.join(map(str, shape))}"
        if key not in self.weights:
            data = self.rng.standard_normal((shape[0] if len(shape) > 1 else 1, shape[-1])).astype(np.float32)
            self.weights[key] = data.view(np.uint8)
        return self.b.weight(key=key, shape=shape, dtype=format_named("F32"))

    def pick(self, rank: int | None = None) -> Node:
        """A value to read; the newest are the likeliest, so chains get long."""
        fitting = [v for v in self.values if rank is None or len(v.type.shape) == rank]
        back = self.draw(st.integers(0, min(len(fitting) - 1, self.draw(st.sampled_from((0, 2, 30))))))
        return fitting[-1 - back]

    def like(self, x: Node) -> Node:
        """A value of x's shape: x itself, another one, or a fresh one."""
        same = [v for v in self.values if v.type.shape == x.type.shape]
        return self.draw(st.sampled_from([x, *same, *same]))

    def step(self) -> None:
        name = self.draw(st.sampled_from(STEPS))
        made = getattr(self, f"make_{name}")()
        self.values += [m for m in made if m.type.dtype is F32]

    def make_binary(self) -> Sequence[Node]:
        x = self.pick()
        row = self.draw(st.booleans()) and self.weight(x.type.shape[-1])
        op = self.b.add if self.draw(st.booleans()) else self.b.mul
        return (op(x, row or self.like(x)),)

    def make_unary(self) -> Sequence[Node]:
        x = self.pick()
        kind = self.draw(st.sampled_from(("scale", "silu", "softmax", "contiguous")))
        return (self.b.scale(x, factor=0.5) if kind == "scale" else getattr(self.b, kind)(x),)

    def make_norm(self) -> Sequence[Node]:
        x = self.pick(2)
        weight = self.weight(x.type.shape[1])
        if not self.draw(st.booleans()):
            return (self.b.rms_norm(x, weight, eps=1e-5),)
        joined = self.b.add_rms_norm(x, self.like(x), weight, eps=1e-5)
        return (joined, *self.b.split_parts(joined, [x.type.shape[1]] * 2))

    def make_swiglu(self) -> Sequence[Node]:
        x = self.pick(2)
        return (self.b.swiglu(x, self.like(x)),)

    def make_gate_up(self) -> Sequence[Node]:
        x = self.pick(2)
        width = self.draw(st.sampled_from(WIDTHS))
        both = self.b.matmul(x, self.weight(2 * width, x.type.shape[1]))
        gate, up = self.b.split_parts(both, [width, width])
        return (both, gate, up, self.b.swiglu(gate, up)) if self.draw(st.booleans()) else (both, gate, up)

    def make_quantized(self) -> Sequence[Node]:
        x = self.pick(2)
        if x.type.shape[1] % 32:
            return ()
        packed = self.b.quantize_act(x, dtype="Q8A32")
        return (self.b.matmul(packed, self.weight(8, x.type.shape[1])),)

    def make_view(self) -> Sequence[Node]:
        x = self.pick()
        starts, shape = [0], [x.type.shape[0]]
        for dim in x.type.shape[1:]:
            start = self.draw(st.integers(0, dim - 1))
            starts.append(start)
            shape.append(self.draw(st.integers(1, dim - start)))
        return (self.b.view(x, starts=starts, shape=shape),)

    def make_halves(self) -> Sequence[Node]:
        x = self.pick()
        width = x.type.shape[-1]
        return self.b.split_parts(x, [width // 2, width - width // 2]) if width > 1 else ()

    def make_overlapping(self) -> Sequence[Node]:
        """Two windows of one value, of one shape, that share some elements or all in another order."""
        x = self.pick(2)
        width = x.type.shape[1]
        if self.draw(st.booleans()) and width % 4 == 0:
            square = self.b.reshape(self.b.view(x, starts=(0, 0), shape=(self.t, 4)), shape=(self.t, 2, 2))
            return (self.b.add(square, self.b.permute(square, axes=(0, 2, 1))),)
        size, shift = max(width - 2, 1), self.draw(st.integers(0, min(2, width - 1)))
        first, second = (self.b.view(x, starts=(0, s), shape=(self.t, size)) for s in (0, min(shift, width - size)))
        return (self.draw(st.sampled_from((self.b.add, self.b.swiglu)))(first, second),)

    def make_reshape(self) -> Sequence[Node]:
        x = self.pick()
        inner = x.type.size // self.t
        heads = self.draw(st.sampled_from([d for d in (1, 2, 3, 4) if inner % d == 0]))
        shape = self.draw(st.sampled_from(((self.t, inner), (self.t, heads, inner // heads))))
        made = self.b.reshape(x, shape=shape)
        return (made, self.b.contiguous(made)) if self.draw(st.booleans()) else (made,)

    def make_permute(self) -> Sequence[Node]:
        if not any(len(v.type.shape) == 3 for v in self.values):
            return self.make_reshape()
        return (self.b.permute(self.pick(3), axes=(0, 2, 1)),)

    def make_rope(self) -> Sequence[Node]:
        if not any(len(v.type.shape) == 3 for v in self.values):
            return self.make_reshape()
        x = self.pick(3)
        if x.type.shape[2] % 2:
            return ()
        return (self.b.rope(x, self.positions, pairs="neox", dims=x.type.shape[2], base=1e4, max_positions=64),)

    def make_store(self) -> Sequence[Node]:
        """Store into the newest version of a region; sometimes attend to it."""
        x = self.pick(2)
        width = x.type.shape[1]
        if self.regions and self.draw(st.booleans()):
            index = self.draw(st.integers(0, len(self.regions) - 1))
            fitting = [v for v in self.values if v.type.shape == (self.t, self.regions[index][0].type.shape[1])]
            if fitting:
                k = self.b.kv_store(self.regions[index][0], fitting[-1], self.cells)
                self.regions[index] = (k, self.regions[index][1])
                return ()
        self.count += 1
        k, v = (self.b.kv(key=f"{n}.{self.count}", cells=CELLS, width=width, dtype=F32) for n in "kv")
        k, v = self.b.kv_store(k, x, self.cells), self.b.kv_store(v, self.like(x), self.cells)
        self.regions.append((k, v))
        return self.attend(x, k, v) if self.draw(st.booleans()) else ()

    def attend(self, x: Node, k: Node, v: Node) -> Sequence[Node]:
        q = self.b.reshape(x, shape=(self.t, 1, x.type.shape[1]))
        return (self.b.attention(q, k, v, self.positions, self.window, n_kv_heads=1, scale=0.1),)

    def make_gather(self) -> Sequence[Node]:
        return (self.b.get_rows(self.pick(2), self.positions),)


STEPS = (
    *("binary", "binary", "unary", "norm", "swiglu", "gate_up", "quantized", "view", "view"),
    *("overlapping", "halves", "reshape", "permute", "rope", "store", "gather"),
)


@st.composite
def cases(draw: Any, backends: int = 1, max_steps: int = 14) -> Case:
    author = Author(draw)
    author.start()
    for _ in range(draw(st.integers(2, max_steps))):
        try:
            author.step()
        except OpError:
            continue  # the drawn shapes don't fit this op
    author.b.softmax(author.pick())
    made = [n for n in author.b._nodes if not n.is_leaf()]
    for node in [made[-1], *draw(st.lists(st.sampled_from(made), max_size=3))]:
        author.b.output(node)
    graph = assign(author.b.build(), draw, [f"dev{i}" for i in range(backends)])
    return Case(graph, make_splits(graph), author.inputs, author.weights)


def assign(graph: Graph, draw: Any, backends: list[str]) -> Graph:
    """A backend for every node: runs of random length; whatever touches a region stays on the first."""
    at, left = backends[0], 0
    chosen: list[str | None] = []
    for node in graph:
        if not left:
            at, left = draw(st.sampled_from(backends)), draw(st.integers(1, 4))
        left -= 1
        pinned = node.spec.effect in ("reads_kv", "writes_kv")
        chosen.append(None if node.is_leaf() else backends[0] if pinned else at)
    return graph.rewrite(lambda n: replace(n, backend=chosen[n.id]))


def make_splits(graph: Graph) -> list[Split]:
    """Runs of one backend; a split lists what its nodes read from values that belong to another."""
    splits: list[Split] = []
    run: list[Node] = []
    for node in [*(n for n in graph if not n.is_leaf()), None]:
        if run and (node is None or node.backend != run[-1].backend):
            inside = run[0].backend
            reads = sorted({s for n in run for s in n.sources if graph[s].backend not in (None, inside)})
            splits.append(Split(len(splits), inside or "", tuple(n.id for n in run), tuple(reads)))
            run = []
        if node is not None:
            run.append(node)
    return splits
