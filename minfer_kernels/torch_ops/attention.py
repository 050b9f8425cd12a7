"""Attention over KV cells, and the store that fills them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from minfer_ir.formats.activation import Q8A32
from minfer_ir.formats.cells import Q8_0_CELL
from minfer_ir.ops.attention import MAP_RUNS, AttentionAttrs, window_mode
from minfer_kernels.torch_ops.blocks import decode, encode
from minfer_kernels.torch_ops.kit import Kit


def kv_store(kit: Kit, attrs: Any, region: Tensor, values: Tensor, cells: Tensor) -> Tensor:
    """Rows into their cells, in the cells' type; the region itself comes back."""
    stored = encode(Q8_0_CELL, values) if region.dtype is torch.uint8 else values.to(region.dtype)
    return region.index_copy_(0, cells.long(), stored)


def attention(
    kit: Kit, attrs: AttentionAttrs, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, window: Tensor
) -> Tensor:
    """Softmax attention in float32 over the cells that any row reads; a row without cells gives zeros."""
    counts = _reads(len(k), positions, window)
    used = counts.any(dim=0).nonzero().squeeze(-1)
    counts = counts.index_select(1, used)[:, None, None, :]
    if k.dtype is torch.uint8:
        q = decode(Q8A32, encode(Q8A32, q.contiguous()))
    heads = (attrs.n_kv_heads, -1)
    keys, values = (_numbers(cells.index_select(0, used)).unflatten(-1, heads) for cells in (k, v))
    scores = torch.einsum("tkgd,ukd->tkgu", q.unflatten(1, heads), keys) * attrs.scale
    largest = (
        scores.masked_fill(counts == 0, -torch.inf).amax(dim=-1, keepdim=True) if len(used) else scores.sum(-1, True)
    )
    shifted = scores - torch.where(largest.isfinite() | largest.isnan(), largest, 0.0)
    weights = torch.where(counts > 0, torch.exp(shifted) * counts, 0.0)
    total = weights.sum(dim=-1, keepdim=True)
    summed = _weighted(weights, counts > 0, values)
    return (summed / torch.where(total == 0, 1.0, total)).flatten(1, 2)


def _weighted(weights: Tensor, seen: Tensor, values: Tensor) -> Tensor:
    """Sums over the cells, `[T, K, G, U]` times `[U, K, D]`.

    A cell that a row doesn't see, by `seen` `[T, 1, 1, U]`, adds nothing to it, where 0 times NaN would.
    """
    finite = values.isfinite()
    summed = torch.einsum("tkgu,ukd->tkgd", weights, torch.where(finite, values, 0.0))
    for u in (~finite).flatten(1).any(dim=1).nonzero().flatten().tolist():
        rest = weights[..., u, None] * torch.where(finite[u], 0.0, values[u])[None, :, None]
        summed += torch.where(seen[..., u, None], rest, 0.0)
    return summed


def _reads(n_cells: int, positions: Tensor, window: Tensor) -> Tensor:
    """Float32 `[T, n_cells]`: how many times each row reads each cell."""
    cell = torch.arange(n_cells, device=positions.device)
    mode = window_mode(tuple(window.shape), len(positions))
    if mode == "causal":
        runs = [(window.expand(len(positions)), positions + 1)]
    elif mode == "span":
        runs = [(window[:, 0], window[:, 1] - window[:, 0])]
    else:
        by_run = window.view(len(window), MAP_RUNS, 2)
        runs = [(by_run[:, i, 0], by_run[:, i, 1]) for i in range(MAP_RUNS)]
    counts = torch.zeros((len(positions), n_cells), device=positions.device)
    for first, length in runs:
        counts += (cell >= first[:, None]) & (cell < (first + length)[:, None])
    return counts


def _numbers(cells: Tensor) -> Tensor:
    return decode(Q8_0_CELL, cells) if cells.dtype is torch.uint8 else cells.float()


OPS = {"kv_store": kv_store, "attention": attention}
