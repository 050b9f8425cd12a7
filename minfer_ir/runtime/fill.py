"""Guards on what a step is filled with: everything is checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from minfer_ir.evaluate import N_ROWS
from minfer_ir.graph import Graph, Node
from minfer_ir.ops.attention import MAP_RUNS
from minfer_ir.opspec import Array

BOUNDS = {
    "output_ids": "the number of rows",
    "token_ids": "the vocabulary of",
    "positions": "n_ctx",
    "cells": "the KV arena of",
}
"""What an input's limit is called in an error."""


class FillError(ValueError):
    """An input that the graph can't be run with: names the input, the row, the value and the bound."""


def input_nodes(graph: Graph) -> dict[str, Node]:
    """The inputs of a graph by key: what `check_fill` compares with, found once per graph."""
    return {n.attrs.key: n for n in graph if n.op == "input"}


def check_fill(wanted: Mapping[str, Node], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """`inputs` in storage dtype, each with its logical length; raises FillError otherwise.

    `wanted` as `input_nodes` gives it. Row inputs hold as many rows as `n_rows` says: no more than the graph's bucket,
    and at least one unless they are output rows.
    """
    if wanted.keys() != inputs.keys():
        _refuse_keys(wanted, inputs)
    counts = np.asarray(inputs[N_ROWS]).reshape(-1)
    filled = {key: _checked(node, np.asarray(inputs[key]), counts) for key, node in wanted.items()}
    n_sequences = len(_sequences(filled["seq_ids"])) if "seq_ids" in wanted else 1
    if "window" in wanted and wanted["window"].type.shape == (1,):
        if n_sequences > 1:
            raise FillError(f"a causal window is for one sequence, seq_ids name {n_sequences}")
        _check_causal(filled["window"], filled["positions"], wanted["window"].attrs.limit)
    return filled


def _refuse_keys(wanted: Mapping[str, Node], inputs: Mapping[str, Array]) -> NoReturn:
    if missing := sorted(set(wanted) - set(inputs)):
        raise FillError(f"inputs {', '.join(missing)} weren't filled")
    unknown = sorted(set(inputs) - set(wanted))
    raise FillError(f"the graph has no inputs {', '.join(unknown)}; it has {', '.join(wanted)}")


def _checked(node: Node, data: Array, counts: NDArray[np.int32]) -> Array:
    attrs = node.attrs
    expected = _logical_shape(node, counts)
    if data.shape != expected:
        raise FillError(f"input {attrs.key} has shape {data.shape}, this step needs {expected}")
    if data.dtype.kind not in "iu" and attrs.dtype.storage.kind in "iu":
        raise FillError(f"input {attrs.key} holds {data.dtype}, expected {attrs.dtype.name}")
    if attrs.key == "window":
        _check_window(data, attrs.limit)
    elif attrs.limit is not None and data.size:
        # The rows whose output is wanted must be rows of this step, not only of its bucket.
        _check_range(attrs.key, data, int(counts[0]) if attrs.key == "output_ids" else attrs.limit)
    return data.astype(attrs.dtype.storage, copy=False)


def _logical_shape(node: Node, counts: NDArray[np.int32]) -> tuple[int, ...]:
    if node.type.rows is None:
        return node.type.shape
    rows = int(counts[0 if node.type.rows == "token" else 1])
    # A chunk of a prompt whose logits nobody wants has no output rows.
    if not (node.type.rows == "token") <= rows <= node.type.shape[0]:
        raise FillError(f"{rows} {node.type.rows} rows don't fit input {node.attrs.key} of {node.type.shape[0]}")
    return (rows, *node.type.shape[1:])


def _check_range(key: str, data: Array, limit: int) -> None:
    # One row is the common case, and a reduction costs more than the comparison.
    low, high = (data.item(),) * 2 if data.size == 1 else (int(data.min()), int(data.max()))
    if low >= 0 and high < limit:
        return
    bad = np.flatnonzero((data < 0) | (data >= limit))
    if len(bad):
        row = int(bad[0])
        bound = BOUNDS.get(key, "the limit of")
        raise FillError(f"{key}[{row}] is {int(data[row])}, not below {bound} {limit}" + " cells" * (key == "cells"))


def _sequences(seq_ids: Array) -> list[int]:
    """The sequences in row order; the rows of each have to stand together."""
    if len(seq_ids) == 1:
        return [int(seq_ids[0])]
    starts = np.flatnonzero(np.diff(seq_ids, prepend=seq_ids[:1] - 1))
    order: list[int] = seq_ids[starts].tolist()
    if len(set(order)) < len(order):
        raise FillError(f"rows of a sequence must stand together; seq_ids change in the order {order}")
    return order


def _check_causal(window: Array, positions: Array, cells: int) -> None:
    """The run of cells that a causal window starts reaches to the last position's."""
    highest = positions.item() if len(positions) == 1 else int(positions.max())
    last = int(window[0]) + highest
    if last >= cells:
        raise FillError(
            f"position {highest} of the sequence at cell {int(window[0])} would lie in cell {last}, "
            f"outside the KV arena of {cells} cells"
        )


def _check_window(data: Array, cells: int) -> None:
    """Every run of cells lies in the arena."""
    if data.ndim == 1:
        return _check_range("window", data, cells)
    pairs = data.reshape(-1, 2) if data.shape[1] == 2 else data.reshape(-1, MAP_RUNS, 2).reshape(-1, 2)
    lo = pairs[:, 0].astype(np.int64)
    hi = pairs[:, 1].astype(np.int64) if data.shape[1] == 2 else lo + pairs[:, 1]
    bad = np.flatnonzero((lo < 0) | (hi < lo) | (hi > cells))
    if len(bad):
        run = int(bad[0])
        raise FillError(f"window run {run} is [{int(lo[run])}, {int(hi[run])}), outside the KV arena of {cells} cells")
    return None
