"""Changing single elements of a row of float32 in place, and changing them back."""

from __future__ import annotations

import numpy as np

from minfer_kernels.cpu.compiler.kernel import F32, Int, Ptr, kernel
from minfer_kernels.cpu.simd import inline, load_f32, load_i64, store_f32, store_i64


@inline
def add_to(row: int, ids: int, terms: int, n_ids: int, saved: int) -> None:
    """Add a term to each of some elements, none of them twice; saved float32[n_ids] is what was there."""
    for i in range(n_ids):
        at = row + 4 * load_i64(ids + 8 * i)
        x = load_f32(at)
        store_f32(saved + 4 * i, x)
        store_f32(at, x + load_f32(terms + 4 * i))


@inline
def put_back(row: int, n: int, ids: int, n_ids: int, saved: int) -> None:
    """Store what was there; ids of n or above are passed over."""
    for i in range(n_ids):
        at = load_i64(ids + 8 * i)
        if at < n:
            store_f32(row + 4 * at, load_f32(saved + 4 * i))


@inline
def record(token: int, length: int, tokens: int, distinct: int, counts: int, n_distinct: int) -> None:
    """Take a token, the last of `length`, into all of them and into the distinct ones with their counts."""
    store_i64(tokens + 8 * (length - 1), token)
    slot, n = 0, load_i64(n_distinct)
    while slot < n and load_i64(distinct + 8 * slot) != token:
        slot += 1
    if slot == n:
        store_i64(distinct + 8 * slot, token)
        store_i64(counts + 8 * slot, 0)
        store_i64(n_distinct, n + 1)
    store_i64(counts + 8 * slot, load_i64(counts + 8 * slot) + 1)


@inline
def take_off(
    row: int, n: int, recent: int, n_recent: int, repeat: float, distinct: int, counts: int, n_distinct: int,
    presence: float, frequency: float, saved: int
) -> None:  # fmt: skip
    """As `penalize`."""
    for i in range(n_recent):
        at = load_i64(recent + 8 * i)
        if at < n:
            store_f32(saved + 4 * i, load_f32(row + 4 * at))
    for i in range(n_recent):
        at = load_i64(recent + 8 * i)
        if at < n:
            x = load_f32(saved + 4 * i)
            store_f32(row + 4 * at, x / repeat if x > 0 else x * repeat)
    for i in range(n_distinct):
        at, count = load_i64(distinct + 8 * i), load_i64(counts + 8 * i)
        if at < n:
            x = load_f32(row + 4 * at)
            store_f32(saved + 4 * (n_recent + i), x)
            if count > 0:
                store_f32(row + 4 * at, x - (presence + np.float32(count) * frequency))


@kernel
def penalize(
    row: Ptr, n: Int, recent: Ptr, n_recent: Int, repeat: F32, distinct: Ptr, counts: Ptr, n_distinct: Int,
    presence: F32, frequency: F32, saved: Ptr
) -> None:  # fmt: skip
    """Change elements in place: those `recent` once, however often they are, then the `distinct` by their counts.

    saved float32[n_recent + n_distinct]: what was there. Ids of n or above are passed over.
    """
    take_off(row, n, recent, n_recent, repeat, distinct, counts, n_distinct, presence, frequency, saved)


@kernel
def restore(row: Ptr, n: Int, recent: Ptr, n_recent: Int, distinct: Ptr, n_distinct: Int, saved: Ptr) -> None:
    """Undo `penalize`."""
    put_back(row, n, distinct, n_distinct, saved + 4 * n_recent)
    put_back(row, n, recent, n_recent, saved)
