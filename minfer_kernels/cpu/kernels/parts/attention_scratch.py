"""The scratch memory of attention, per thread: what the backend allocates and the kernel divides."""

from __future__ import annotations

# Queries (rows times heads) that share one staged KV block; more would push the block out of the L1 cache.
QUERIES = 32
BLOCK = 64


def attention_scratch_bytes(n_heads: int, n_kv_heads: int, head_dim: int) -> int:
    """Bytes that each thread needs, a multiple of 64 so that threads share no cache line.

    In order: one KV block of a head widened to float32, then for each query its scores, its elements, its result
    (all padded to whole vectors) and four float32 of state.
    """
    padded = (head_dim + 7) // 8 * 8
    queries = max(QUERIES, n_heads // n_kv_heads)
    floats = BLOCK * padded + queries * (BLOCK + 2 * padded + 4)
    return (4 * floats + 63) // 64 * 64
