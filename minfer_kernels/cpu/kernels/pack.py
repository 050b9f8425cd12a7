"""Packing weights: GGUF rows become the interleaved groups of a `WeightLayout`, as a program of terms says.

One kernel serves every format, so that a first start compiles no other (`weights.pack_program` has what a term means).
The terms pass one after another over a few blocks of a group, which stay in a core's first cache meanwhile.
"""

from __future__ import annotations

from minfer_kernels.cpu.compiler.kernel import Int, Ptr, kernel
from minfer_kernels.cpu.kernels.parts.pack_terms import (
    bits_term,
    byte_term,
    crumbs_term,
    half_term,
    nibbles_term,
    pair_term,
    word_term,
)
from minfer_kernels.cpu.kernels.parts.rows import first_item
from minfer_kernels.cpu.simd import inline, larger, load_i64, smaller, store_i64
from minfer_kernels.cpu.weights.pack_program import BITS, BYTE, CRUMBS, HALF, NIBBLES, PAIR, TERM_WORDS, word_of

# Source and packed blocks together: what every first-level data cache has room for.
PIECE_BYTES = 1 << 15
_UNIT, _SOURCE, _TO = word_of("unit"), word_of("source"), word_of("to")


@kernel
def pack(
    rows_at: Ptr, out: Ptr, program: Ptr, nonfinite: Ptr, terms: Int, rows: Int, n_groups: Int, n_blocks: Int,
    source_bytes: Int, block_bytes: Int, tid: Int, n_threads: Int,
) -> None:  # fmt: skip
    """Pack `n_groups` groups of `rows` rows and `n_blocks` blocks each; threads share the groups.

    `rows_at` holds the int64 address of every row, padding included; `nonfinite` an int64 per thread, not 0 once the
    thread has met a NaN or infinite number. `source_bytes` is a GGUF block, `block_bytes` a packed group block.
    """
    found = 0
    step = larger(1, PIECE_BYTES // (rows * source_bytes + block_bytes))
    for g in range(first_item(n_groups, tid, n_threads), first_item(n_groups, tid + 1, n_threads)):
        group = out + g * n_blocks * block_bytes
        for first in range(0, n_blocks, step):
            n = smaller(step, n_blocks - first)
            for t in range(terms):
                term = program + 8 * TERM_WORDS * t
                unit, skip = load_i64(term + _UNIT), first * source_bytes + load_i64(term + _SOURCE)
                to = group + first * block_bytes + load_i64(term + _TO)
                for r in range(rows):
                    source = load_i64(rows_at + 8 * (rows * g + r)) + skip
                    found |= _term(term, source, source_bytes, to + unit * r, block_bytes, n)
    if found != 0:
        store_i64(nonfinite + 8 * tid, 1)


@inline
def _term(term: int, source: int, source_bytes: int, to: int, block_bytes: int, n: int) -> int:
    kind = load_i64(term)
    if kind == PAIR:
        pair_term(term, source, source_bytes, to, block_bytes, n)
    elif kind == NIBBLES:
        nibbles_term(term, source, source_bytes, to, block_bytes, n)
    elif kind == CRUMBS:
        crumbs_term(term, source, source_bytes, to, block_bytes, n)
    elif kind == BITS:
        bits_term(term, source, source_bytes, to, block_bytes, n)
    elif kind == BYTE:
        byte_term(term, source, source_bytes, to, block_bytes, n)
    elif kind == HALF:
        return half_term(term, source, source_bytes, to, block_bytes, n)
    else:
        return word_term(term, source, source_bytes, to, block_bytes, n)
    return 0
