"""The window inputs of attention for the rows of one forward.

A row at position p reads positions 0 to p of its sequence, its own included: rows are stored before they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from minfer_ir.kv.spans import KvError, Span, leading_runs
from minfer_ir.kv.store import Ints, KvStore
from minfer_ir.ops.attention import MAP_RUNS
from minfer_ir.params import WindowMode

Window = NDArray[np.int32]
RowRuns = tuple[int, int, tuple[Span, ...]]
"""A row's sequence, its position, and the runs of cells that it reads."""


def check_grouped(seq_ids: Ints) -> list[tuple[int, int]]:
    """(sequence, number of rows) in row order; refused when a sequence's rows aren't next to each other."""
    if len(seq_ids) == 1:
        return [(int(seq_ids[0]), 1)]
    groups = [(seq_id, len(list(rows))) for seq_id, rows in groupby(_ints(seq_ids))]
    seen: set[int] = set()
    for seq_id, _ in groups:
        if seq_id in seen:
            order = [s for s, _ in groups]
            raise KvError(f"rows of sequence {seq_id} aren't next to each other; sequences come in the order {order}")
        seen.add(seq_id)
    return groups


def causal_window(store: KvStore, seq_ids: Ints, positions: Ints) -> Window:
    """int32 `[1]`: the cell of position 0, when all rows belong to one sequence whose window is one run."""
    return _causal(_row_runs(store, seq_ids, positions))


def span_window(store: KvStore, seq_ids: Ints, positions: Ints) -> Window:
    """int32 `[T, 2]`: (first cell, one past the last) of every row; refused for a window of several runs."""
    return _span(_row_runs(store, seq_ids, positions))


def map_window(store: KvStore, seq_ids: Ints, positions: Ints) -> Window:
    """int32 `[T, 8]`: up to four (cell, length) runs of every row, in order of position, the rest zero."""
    return _map(_row_runs(store, seq_ids, positions))


def narrowest_window(store: KvStore, seq_ids: Ints, positions: Ints) -> tuple[WindowMode, Window]:
    """The first mode of `WINDOWS` that can express these rows, and its input; refused when none can."""
    if len(seq_ids) == len(positions) == 1:
        # A decode step, where the general way costs a percent of the token.
        seq_id, position = int(seq_ids[0]), int(positions[0])
        store.length_after(seq_id, positions)
        runs = leading_runs(store.reservation(seq_id).spans, position + 1)
        if len(runs) == 1:
            return "causal", np.array([runs[0].cell], np.int32)
    rows = _row_runs(store, seq_ids, positions)
    if max((len(runs) for _, _, runs in rows), default=1) > 1:
        return "map", _map(rows)
    if len({seq_id for seq_id, _, _ in rows}) == 1:
        return "causal", _causal(rows)
    return "span", _span(rows)


def _causal(rows: Sequence[RowRuns]) -> Window:
    if len(owners := dict.fromkeys(seq_id for seq_id, _, _ in rows)) != 1:
        raise KvError(f"a causal window is for exactly one sequence, got {list(owners)}")
    for seq_id, position, runs in rows:
        _check_runs(seq_id, position, runs, 1, "causal")
    return np.array([rows[0][2][0].cell], np.int32)


def _span(rows: Sequence[RowRuns]) -> Window:
    for seq_id, position, runs in rows:
        _check_runs(seq_id, position, runs, 1, "span")
    return np.array([(runs[0].cell, runs[0].end) for _, _, runs in rows], np.int32).reshape(-1, 2)


def _map(rows: Sequence[RowRuns]) -> Window:
    window = np.zeros((len(rows), MAP_RUNS, 2), np.int32)
    for row, (seq_id, position, runs) in zip(window, rows, strict=True):
        _check_runs(seq_id, position, runs, MAP_RUNS, "map")
        row[: len(runs)] = [(r.cell, r.length) for r in runs]
    return window.reshape(len(rows), 2 * MAP_RUNS)


WINDOWS: Mapping[str, Callable[[KvStore, Ints, Ints], Window]] = MappingProxyType(
    {"causal": causal_window, "span": span_window, "map": map_window}
)
"""The window input by mode, narrowest mode first."""


def _row_runs(store: KvStore, seq_ids: Ints, positions: Ints) -> list[RowRuns]:
    """(sequence, position, runs of cells it reads) of every row; refused for interleaved rows and for holes."""
    owners, at = _ints(seq_ids), _ints(positions)
    if len(owners) != len(at):
        raise KvError(f"{len(owners)} sequence ids for {len(at)} positions")
    rows: list[RowRuns] = []
    for seq_id, count in check_grouped(owners):
        own = at[len(rows) : len(rows) + count]
        store.length_after(seq_id, own)
        spans = store.reservation(seq_id).spans
        rows += [(seq_id, p, leading_runs(spans, p + 1)) for p in own]
    return rows


def _check_runs(seq_id: int, position: int, runs: Sequence[Span], most: int, mode: str) -> None:
    if len(runs) > most:
        raise KvError(
            f"sequence {seq_id}: positions 0 to {position} lie in {len(runs)} runs of cells, "
            f"a {mode} window holds {most}"
        )


def _ints(values: Ints) -> list[int]:
    return np.asarray(values, np.int64).reshape(-1).tolist()
