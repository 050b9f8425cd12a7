"""Attention over KV cells, and the store that fills them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_ir.dtypes import F16, F32, I32
from minfer_ir.formats.activation import Q8A32
from minfer_ir.formats.base import Format
from minfer_ir.formats.cells import Q8_0_CELL, cell_values, stored_cells
from minfer_ir.ops.elementwise import rows
from minfer_ir.ops.leaves import KV_TYPES
from minfer_ir.opspec import Array, CellReads, Cost, NoAttrs, Op, OpCase, Operand, OpError, f32
from minfer_ir.types import ElementType, TensorType

MAP_RUNS = 4
"""Runs of cells that one row's map window can hold."""


class KvStore(Op):
    """Write one row per token into its cell; the output is the region itself, so later reads are ordered after it."""

    name = "kv_store"
    operands = (Operand("region", "C W", KV_TYPES), Operand("values", "T W"), Operand("cells", "T", ("i32",)))
    effect = "writes_kv"
    writes = "region"
    stored = ("region",)

    def infer(self, attrs: NoAttrs, region: TensorType, values: TensorType, cells: TensorType) -> TensorType:
        """The type of `region`."""
        return region

    def reference(self, attrs: NoAttrs, region: Array, values: Array, cells: Array) -> Array:
        """Stores in place and returns the region."""
        with np.errstate(over="ignore"):
            region[cells] = stored_cells(values, region)
        return region

    def cost(self, attrs: NoAttrs, out: TensorType, region: TensorType, values: TensorType, cells: TensorType) -> Cost:
        """Reads the rows, writes their cells."""
        written = values.shape[0] * region.dtype.row_bytes(region.shape[1])
        return Cost(0, values.nbytes + written, written)

    def cases(self) -> Sequence[OpCase]:
        """Every cell type, scattered cells."""
        cells = TensorType((3,), I32, "token")
        return [
            OpCase(d.name, (TensorType((9, n), d), rows(3, n), cells), {}, {"cells": (8, 0, 3)})
            for d, n in ((F32, 24), (F16, 24), (Q8_0_CELL, 96))
        ]


@dataclass(frozen=True, slots=True)
class AttentionAttrs:
    """`scale` multiplies the scores; query heads share KV heads in groups of n_heads / n_kv_heads."""

    n_kv_heads: int
    scale: float


class Attention(Op):
    """Softmax attention of each row over the cells that its window names.

    The shape of `window` selects the mode. `[1]`, causal: the forward holds one sequence whose logical position p
    lies in cell window[0] + p, and a row reads positions 0 to its own. `[T, 2]`, span: row t reads cells
    [lo, hi), logical positions from 0. `[T, 8]`, map: up to four (cell, length) runs, joined in order.
    A row whose window is empty gives zeros.

    Over packed cells a head has to be whole blocks of 32 elements, and each row's query heads are rounded to 8 bits as
    `quantize_act` to Q8A32 does, so that scores are sums of integer products. Everything else stays float.
    """

    name = "attention"
    operands = (
        Operand("q", "T N D"),
        Operand("k", "C W", KV_TYPES),
        Operand("v", "C W", KV_TYPES),
        Operand("positions", "T", ("i32",)),
        Operand("window", "*", ("i32",)),
    )
    Attrs = AttentionAttrs
    effect = "reads_kv"
    stored = ("k", "v")

    def infer(
        self,
        attrs: AttentionAttrs,
        q: TensorType,
        k: TensorType,
        v: TensorType,
        positions: TensorType,
        window: TensorType,
    ) -> TensorType:
        """The type of `q`."""
        _, heads, head_dim = q.shape
        if attrs.n_kv_heads <= 0 or heads % attrs.n_kv_heads:
            raise OpError(f"attention: {heads} query heads are not a multiple of {attrs.n_kv_heads} KV heads")
        if k.shape[1] != attrs.n_kv_heads * head_dim:
            raise OpError(f"attention: KV rows hold {k.shape[1]} elements, expected {attrs.n_kv_heads} x {head_dim}")
        if k.dtype is not v.dtype:
            raise OpError(
                f"attention: K is {k.dtype.name} and V is {v.dtype.name}; the KV format belongs to the engine"
            )
        if isinstance(k.dtype, Format) and head_dim % k.dtype.block_size:
            raise OpError(
                f"attention: heads of {head_dim} elements aren't whole {k.dtype.name} blocks of {k.dtype.block_size}"
            )
        window_mode(window.shape, q.shape[0])
        return q

    def reference(self, attrs: AttentionAttrs, q: Array, k: Array, v: Array, positions: Array, window: Array) -> Array:
        """Row by row in float64 over the cells of its window; `k` and `v` as stored."""
        if k.dtype == np.uint8:
            q = Q8A32.decode(Q8A32.encode(np.ascontiguousarray(q)))
        k, v = cell_values(k), cell_values(v)
        heads, head_dim = q.shape[1:]
        group = heads // attrs.n_kv_heads
        out = np.zeros(q.shape, np.float64)
        for t, cells in enumerate(window_cells(positions, window)):
            if not len(cells):
                continue
            keys = k[cells].astype(np.float64).reshape(len(cells), attrs.n_kv_heads, head_dim).repeat(group, axis=1)
            values = v[cells].astype(np.float64).reshape(len(cells), attrs.n_kv_heads, head_dim).repeat(group, axis=1)
            scores = np.einsum("hd,chd->hc", q[t].astype(np.float64), keys) * attrs.scale
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[t] = np.einsum("hc,chd->hd", weights / weights.sum(axis=1, keepdims=True), values)
        return f32(out)

    def cost(
        self,
        attrs: AttentionAttrs,
        out: TensorType,
        q: TensorType,
        k: TensorType,
        v: TensorType,
        *_: Any,
        reads: CellReads | None = None,
    ) -> Cost:
        """Two products per row and cell it reads; each cell from memory once. Without `reads`: all by every row."""
        cells = k.shape[0] if reads is None else reads.cells
        pairs = q.shape[0] * cells if reads is None else reads.rows
        per_pair = 4 * q.shape[1] * q.shape[2]
        read = cells * (k.dtype.row_bytes(k.shape[1]) + v.dtype.row_bytes(v.shape[1]))
        return Cost(per_pair * pairs, q.nbytes + out.nbytes + read, read)

    def cases(self) -> Sequence[OpCase]:
        """Every window mode and cell type; an empty window; grouped heads; windows across a 64-position block edge."""
        span = (0, 70, 5, 5, 64, 130)
        runs = (3, 60, 80, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 129, 1, 4, 64, 90, 1, 0, 2)
        windows = {"causal": ((1,), (2,)), "span": ((3, 2), span), "map": ((3, 8), runs)}
        return [
            _case(f"{mode}_{d.name}_{heads}x{kv}x{dim}", d, (heads, kv, dim), shape, values)
            for mode, (shape, values) in windows.items()
            for d, geometries in CASE_GEOMETRIES
            for heads, kv, dim in geometries
        ]


_FLOAT_GEOMETRIES = ((1, 1, 1), (6, 2, 20), (4, 4, 64))
CASE_GEOMETRIES = (
    (F32, _FLOAT_GEOMETRIES),
    (F16, _FLOAT_GEOMETRIES),
    (Q8_0_CELL, ((1, 1, 32), (6, 2, 96), (4, 4, 64))),
)
"""Cell types with the (query heads, KV heads, head_dim) that they are tried with."""


def window_mode(shape: tuple[int, ...], n_rows: int) -> str:
    """The mode that a window input of `shape` selects; a shape that fits none is refused."""
    modes: dict[tuple[int, ...], str] = {(1,): "causal", (n_rows, 2): "span", (n_rows, 2 * MAP_RUNS): "map"}
    if shape not in modes:
        raise OpError(f"attention: a window of shape {shape} fits no mode; for {n_rows} rows: {list(modes)}")
    return modes[shape]


def window_cells(positions: Array, window: Array) -> list[NDArray[np.int64]]:
    """The cells each row reads, in logical order."""
    if window.shape == (1,):
        return [int(window[0]) + np.arange(int(p) + 1) for p in positions]
    if window.shape[1] == 2:
        return [np.arange(int(lo), int(hi)) for lo, hi in window]
    runs = window.reshape(len(window), MAP_RUNS, 2)
    return [np.concatenate([np.arange(int(c), int(c) + int(n)) for c, n in row]) for row in runs]


def _case(
    label: str, dtype: ElementType, geometry: tuple[int, int, int], window: tuple[int, ...], values: tuple[int, ...]
) -> OpCase:
    heads, kv_heads, dim = geometry
    cells = TensorType((140, kv_heads * dim), dtype)
    operands = (
        rows(3, heads, dim),
        cells,
        cells,
        TensorType((3,), I32, "token"),
        TensorType(window, I32, _rows_of(window)),
    )
    ints: dict[str, Any] = {"positions": (0, 63, 130), "window": values}
    return OpCase(label, operands, {"n_kv_heads": kv_heads, "scale": dim**-0.5}, ints)


def _rows_of(window: tuple[int, ...]) -> Any:
    return "token" if len(window) == 2 else None
