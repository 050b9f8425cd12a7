"""Moves of KV cells on the device: as if every row were read before any is written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton

from minfer_ir.runtime.probe import Probe
from minfer_kernels.gpu.kernels import copy
from minfer_kernels.gpu.launch import Launch

BLOCK = 512
MOVE_SITES = ("cells.move", "cells.lift", "cells.lay")

Move = tuple[int, int, int]


def copy_cells(region: torch.Tensor, moves: Sequence[Move], probe: Probe) -> None:
    """Moves (from cell, to cell, count) within `region` `[cells, row_bytes]`; they may overlap in any direction.

    Rows that nothing writes before they are read go straight to their place. Where the cells that moves read and write
    have some in common, all go through memory of their own: programs of one launch run in no order.
    """
    came = _rows([(source, count) for source, _, count in moves])
    goes = _rows([(target, count) for _, target, count in moves])
    if not len(came):
        return
    words = _widest(region)
    if not np.intersect1d(came, goes).size:
        _launch("cells.move", words, words, came, goes, probe)
        return
    staged = torch.empty((len(came), words.shape[1]), dtype=words.dtype, device=words.device)
    straight = np.arange(len(came), dtype=np.int32)
    _launch("cells.lift", words, staged, came, straight, probe)
    _launch("cells.lay", staged, words, straight, goes, probe)


def _rows(runs: Sequence[tuple[int, int]]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.concatenate([np.arange(first, first + count, dtype=np.int32) for first, count in runs] or [_NONE])


_NONE = np.empty(0, np.int32)


def _widest(region: torch.Tensor) -> torch.Tensor:
    """The rows as words of four bytes, or bytes where they don't come out whole."""
    return region if region.shape[1] % 4 or region.data_ptr() % 4 else region.view(torch.int32)


def _launch(
    site: str,
    source: torch.Tensor,
    target: torch.Tensor,
    came: np.ndarray[tuple[int], np.dtype[np.int32]],
    goes: np.ndarray[tuple[int], np.dtype[np.int32]],
    probe: Probe,
) -> None:
    width = source.shape[1]
    indices = {
        name: torch.from_numpy(rows).to(source.device) for name, rows in (("from_rows", came), ("to_rows", goes))
    }
    args = {"source": source, "target": target, **indices, "width": width}
    grid = (len(came), triton.cdiv(width, BLOCK))
    Launch(site, "copy_cells", copy.rows_between, grid, args, {"BLOCK": BLOCK}).run(probe)
