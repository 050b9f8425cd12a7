"""The memory that attention works in: per thread, and shared by all where a row's blocks are split over threads."""

from __future__ import annotations

BLOCK = 128
"""Logical positions of a KV block: the unit of the canonical order and of splitting."""
QUERIES = 64
"""Queries (rows times heads) that share a staged KV block: what staging costs is spread over them."""
COLUMNS = 64
"""Float32 of a value column: four vectors that stay in registers for several queries."""
SPLIT_ROWS = 8
"""A forward of more rows than this has work for every thread without splitting rows."""

COUNTER_BYTES = 8192
"""The front of the shared memory: counters, which every call leaves zero. Partial results lie behind them."""
COUNTER_STRIDE = 64
MOST_SPLIT_HEADS = COUNTER_BYTES // 8 // SPLIT_ROWS - 16
"""KV heads beyond this are never split: their counters would not fit."""


def padded(n: int, unit: int) -> int:
    """`n` up to a multiple of `unit`."""
    return -(-n // unit) * unit


def query_slots(group: int) -> int:
    """Queries that a tile has room for: whole groups of four."""
    return padded(max(QUERIES, group), 4)


def query_bytes(head_dim: int) -> int:
    """Bytes of one query: its scores, its elements (as float32, or packed), its result and its state."""
    return 4 * (BLOCK + padded(head_dim, 16) + padded(head_dim, COLUMNS) + 16)


def fixed_bytes(head_dim: int) -> int:
    """Bytes of the tables of cells, the staged block, its scales and a group's values."""
    return (
        3 * 8 * BLOCK
        + 4 * BLOCK * padded(head_dim, COLUMNS)
        + 2 * scale_bytes(head_dim)
        + 16 * padded(head_dim, COLUMNS)
    )


def scale_bytes(head_dim: int) -> int:
    """Bytes of a block's scales, one per 32 elements of a head."""
    return 4 * BLOCK * padded(padded(head_dim, 32) // 32, 4)


def attention_scratch_bytes(n_heads: int, n_kv_heads: int, head_dim: int) -> int:
    """Bytes that each thread needs, a multiple of 64 so that threads share no cache line."""
    group = n_heads // n_kv_heads
    return padded(fixed_bytes(head_dim) + query_slots(group) * query_bytes(head_dim), 64)


def partial_bytes(head_dim: int) -> int:
    """Bytes of one head's result over one block: its maximum and sum in the first 64 bytes, then its values."""
    return 64 + 4 * padded(head_dim, COLUMNS)


def most_blocks(rows: int, n_cells: int, n_kv_heads: int) -> int:
    """Blocks per row that partial results have room for; 0 where rows are never split."""
    return 0 if rows > SPLIT_ROWS or n_kv_heads > MOST_SPLIT_HEADS else -(-n_cells // BLOCK)


def shared_bytes(rows: int, n_cells: int, n_heads: int, n_kv_heads: int, head_dim: int) -> int:
    """Bytes of the counters and of every partial result of up to `rows` rows."""
    return COUNTER_BYTES + rows * n_heads * most_blocks(rows, n_cells, n_kv_heads) * partial_bytes(head_dim)
