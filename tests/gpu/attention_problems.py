"""Attention on the GPU backend over cells laid out for each window mode, for tests to compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from minfer_ir.builder import GraphBuilder
from minfer_ir.formats.cells import stored_cells
from minfer_ir.graph import Graph, Node
from minfer_ir.ops import OPS
from minfer_ir.runtime.backend import Backend, Binding, BufRef, Split
from minfer_ir.testing.tolerances import Held, Tolerance, difference
from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.device import InterpretedDevice
from minfer_kernels.gpu.kernels.attention.choices import AttentionOptions, FlashChoice, SplitChoice
from minfer_kernels.gpu.targets import INTERPRETER, Target

Array = NDArray[Any]
STORAGE = {"f32": np.float32, "f16": np.float16, "q8_0": np.uint8}
SMALL = AttentionOptions(split_rows=4, split=SplitChoice(split=32, block=16), flash=FlashChoice(tile=16, block=16))
"""Tiles that few positions fill, so that edges are cheap to reach."""


@dataclass(frozen=True)
class Problem:
    """Queries of sequences one after another, and each sequence's K and V rows as stored, by logical position."""

    q: Array
    k: list[Array]
    v: list[Array]
    lengths: list[tuple[int, ...]]
    n_kv_heads: int
    cell_type: str

    @property
    def scale(self) -> float:
        return float(np.float32(self.q.shape[2] ** -0.5))

    def only(self, sequence: int, row: int = 0, rows: int = 1) -> Problem:
        """Some rows of one sequence, alone."""
        before = sum(len(own) for own in self.lengths[:sequence]) + row
        lengths = [self.lengths[sequence][row : row + rows]]
        k, v = [self.k[sequence]], [self.v[sequence]]
        return Problem(self.q[before : before + rows], k, v, lengths, self.n_kv_heads, self.cell_type)


def draw(seed: int, lengths: Sequence[Sequence[int]], heads: int, kv_heads: int, dim: int, cell_type: str) -> Problem:
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((sum(map(len, lengths)), heads, dim), dtype=np.float32)
    like = np.empty(0, STORAGE[cell_type])
    stored = [
        [
            stored_cells(rng.standard_normal((max([*own, 1]), kv_heads * dim), dtype=np.float32) * 2, like)
            for own in lengths
        ]
        for _ in range(2)
    ]
    return Problem(q, *stored, [tuple(own) for own in lengths], kv_heads, cell_type)


@dataclass(frozen=True)
class Placed:
    """A problem's cells in a region, with the window input of one mode; nobody's cells hold what must not be read."""

    k: Array
    v: Array
    positions: Array
    window: Array
    mode: str
    bucket: int


def place(p: Problem, mode: str, shift: int = 3, bucket: int | None = None) -> Placed:
    """Causal and span: a sequence in one run. Map: in up to four, the last positions in the first cells."""
    assert mode != "causal" or len(p.lengths) == 1
    region_cells: list[Array] = []
    runs_of: list[list[tuple[int, int]]] = []
    free = shift
    for k in p.k:
        n = len(k)
        cuts = sorted({0, n // 7, n // 3, n // 2, n}) if mode == "map" else [0, n]
        pieces = list(pairwise(cuts[-5:]))
        starts = {}
        for lo, hi in reversed(pieces):
            starts[lo] = free
            free += hi - lo + 2
        runs_of.append([(starts[lo], hi - lo) for lo, hi in pieces])
        region_cells.append(np.concatenate([starts[lo] + np.arange(hi - lo) for lo, hi in pieces]))
    rows = sum(map(len, p.lengths))
    bucket = bucket or rows
    lengths = np.array([n for own in p.lengths for n in own])
    if mode == "causal":
        window = np.array([runs_of[0][0][0]], np.int32)
    else:
        per_row = [_row_window(mode, runs, n) for runs, own in zip(runs_of, p.lengths, strict=True) for n in own]
        window = np.full((bucket, len(per_row[0])), 1 << 20, np.int32)
        window[:rows] = per_row
    positions = np.full(bucket, 1 << 20, np.int32)
    positions[:rows] = lengths - 1
    k, v = (_region(values, region_cells, free) for values in (p.k, p.v))
    return Placed(k, v, positions, window, mode, bucket)


def _row_window(mode: str, runs: list[tuple[int, int]], length: int) -> list[int]:
    if mode == "span":
        return [runs[0][0], runs[0][0] + length]
    window, left = [], length
    for cell, n in runs:
        window += [cell, min(n, left)]
        left -= min(n, left)
    return window + [0] * (8 - len(window))


def _region(values: list[Array], cells: list[Array], total: int) -> Array:
    nothing: Any = 255 if values[0].dtype == np.uint8 else np.nan
    region = np.full((total, values[0].shape[1]), nothing, values[0].dtype)
    for rows, at in zip(values, cells, strict=True):
        region[at] = rows
    return region


def _nothing(cells: Array) -> Array:
    return (cells == 255 if cells.dtype == np.uint8 else np.isnan(cells)).all(axis=1)


@dataclass
class Run:
    """The backend's result, and its launches as it lists them."""

    out: Array
    listing: list[str] = field(default_factory=list)

    def sites(self) -> list[str]:
        return [line.split(": ", 1)[1].split("[")[0] for line in self.listing]


def attend(
    p: Problem,
    placed: Placed,
    options: AttentionOptions = SMALL,
    times: int = 1,
    target: Target = INTERPRETER,
    on: Backend | None = None,
) -> Run:
    """Through a backend, the GPU's unless `on` says, as a plan of one node.

    Rows of the bucket beyond the step's stay as they were: NaN. `target`: whose tiles it takes where the options set
    none.
    """
    graph, node = _graph(p, placed)
    backend = on or GpuBackend(torch.device("cpu"), attention=options, on=InterpretedDevice(target))
    feed = {"q": p.q, "k": placed.k, "v": placed.v, "positions": placed.positions, "window": placed.window}
    refs: dict[int, BufRef] = {}
    for source in (n for n in graph if n.is_leaf()):
        value = np.ascontiguousarray(feed[source.attrs.key])
        room = np.full(source.type.nbytes, 255, np.uint8)
        room[: value.nbytes] = value.reshape(-1).view(np.uint8)
        refs[source.id] = _buffer(backend, room, source.strides)
    refs[node.id] = _buffer(backend, np.full(node.type.nbytes, 255, np.uint8), node.strides)
    counts = _buffer(backend, np.array([len(p.q), 0], np.int32).view(np.uint8), (4,))
    program = backend.compile(graph, Split(0, backend.name, (node.id,), ()), Binding(refs, {}, counts))
    for _ in range(times):
        program.run()
    out = backend.read(refs[node.id], node.type)
    assert np.isnan(out[len(p.q) :]).all(), "a row that the step doesn't have was written"
    return Run(out[: len(p.q)], list(program.listing()))


def _graph(p: Problem, placed: Placed) -> tuple[Graph, Node]:
    builder = GraphBuilder()
    heads, dim = p.q.shape[1:]
    cells, width = len(placed.k), p.n_kv_heads * dim
    inputs = [
        builder.input(key="q", shape=(placed.bucket, heads, dim), dtype="f32", rows="token"),
        *(builder.kv(key=key, cells=cells, width=width, dtype=p.cell_type) for key in ("k", "v")),
        builder.input(key="positions", shape=(placed.bucket,), dtype="i32", rows="token"),
        builder.input(
            key="window", shape=placed.window.shape, dtype="i32", rows=None if placed.mode == "causal" else "token"
        ),
    ]
    node = builder.attention(*inputs, n_kv_heads=p.n_kv_heads, scale=p.scale)
    builder.output(node)
    graph = builder.build()
    return graph, graph.nodes[-1]


def _buffer(backend: Backend, data: Array, strides: tuple[int, ...]) -> BufRef:
    ref = BufRef(backend.allocate(len(data)), 0, len(data), (1,))
    backend.write(ref, data)
    return BufRef(ref.buffer, 0, len(data), strides)


def wrong(p: Problem, placed: Placed, out: Array, tolerance: Tolerance) -> str | None:
    """None, or how `out` is off the op's reference."""
    _, node = _graph(p, placed)
    rows = len(p.q)
    window = placed.window if placed.mode == "causal" else placed.window[:rows]
    # The reference reads no cell outside of a window; the magnitude that errors are measured by reads them all.
    k, v = (np.where(_nothing(cells)[:, None], 0, cells).astype(cells.dtype) for cells in (placed.k, placed.v))
    operands = (p.q, k, v, placed.positions[:rows], window)
    expected = OPS["attention"].reference(node.attrs, *operands)
    return difference(Held(OPS["attention"], node.attrs, node.type, operands), expected, out, tolerance)
