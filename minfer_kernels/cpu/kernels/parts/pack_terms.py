"""The terms of a packing program as kernel functions, each over `n` blocks of one row.

They take (term, source, source_bytes, to, block_bytes, n): the address of the term, of the row's first block (the
term's offset included) with the bytes between blocks, and the same for the packed blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minfer_kernels.cpu.simd import inline, load_i64, load_u8, smaller, store_i16, store_i32, store_i64
from minfer_kernels.cpu.simd.scalars import load_u16, load_u32, load_u64, store_i8
from minfer_kernels.cpu.weights.pack_program import HALF, TERM_WORDS, WORD, word_of

_UNIT, _SOURCE, _TO = word_of("unit"), word_of("source"), word_of("to")
_SHIFT, _MASK, _FACTOR, _KEEP = word_of("shift"), word_of("mask"), word_of("factor"), word_of("keep")
_FLIP, _JOINS, _EXPONENT, _BESIDE = word_of("flip"), word_of("joins"), word_of("exponent"), word_of("beside")

LOW_NIBBLES, LOW_CRUMBS, LOW_BITS = 0x0F0F0F0F0F0F0F0F, 0x0303030303030303, 0x0101010101010101


def _unit_term(load: Callable[..., Any], store: Callable[..., Any]) -> Callable[..., Any]:
    @inline
    def units(term: int, source: int, source_bytes: int, to: int, block_bytes: int, n: int) -> int:
        """Returns 1 when a number among them isn't finite, else 0."""
        shift, mask, factor = load_i64(term + _SHIFT), load_i64(term + _MASK), load_i64(term + _FACTOR)
        keep, flip, exponent = load_i64(term + _KEEP), load_i64(term + _FLIP), load_i64(term + _EXPONENT)
        if load_i64(term + _JOINS) != 0:
            for b in range(n):
                bits = (((load(source + b * source_bytes) >> shift) & mask) * factor) & keep
                at = to + b * block_bytes
                store(at, load(at) ^ bits ^ flip)
            return 0
        # added to an exponent of all ones, its lowest bit carries into the place above
        carry = exponent & -exponent
        found = 0
        for b in range(n):
            bits = load(source + b * source_bytes)
            found |= (bits & exponent) + carry
            store(to + b * block_bytes, ((((bits >> shift) & mask) * factor) & keep) ^ flip)
        return smaller(1, found & (exponent + carry))

    return units


byte_term = _unit_term(load_u8, store_i8)
half_term = _unit_term(load_u16, store_i16)
word_term = _unit_term(load_u32, store_i32)


@inline
def pair_term(term: int, source: int, source_bytes: int, to: int, block_bytes: int, n: int) -> None:
    """Two words as they are."""
    beside = load_i64(term + _BESIDE)
    for b in range(n):
        words, at = load_u64(source + b * source_bytes), to + b * block_bytes
        store_i32(at, words)
        store_i32(at + beside, words >> 32)


@inline
def nibbles_term(term: int, source: int, source_bytes: int, to: int, block_bytes: int, n: int) -> None:
    """Nibbles of 8 bytes, and of 8 bytes 16 further, into two words."""
    shift, beside = load_i64(term + _SHIFT), load_i64(term + _BESIDE)
    for b in range(n):
        p, at = source + b * source_bytes, to + b * block_bytes
        low, high = (load_u64(p) >> shift) & LOW_NIBBLES, (load_u64(p + 16) >> shift) & LOW_NIBBLES
        words = low | (high << 4)
        store_i32(at, words)
        store_i32(at + beside, words >> 32)


@inline
def crumbs_term(term: int, source: int, source_bytes: int, to: int, block_bytes: int, n: int) -> None:
    """Two bits of 16 bytes into one word."""
    shift = load_i64(term + _SHIFT)
    for b in range(n):
        p = source + b * source_bytes
        first, second = (load_u64(p) >> shift) & LOW_CRUMBS, (load_u64(p + 8) >> shift) & LOW_CRUMBS
        # quads 0 and 2 in the lower word, 1 and 3 in the upper one
        quads = first | (second << 4)
        store_i32(to + b * block_bytes, quads | (quads >> 30))


@inline
def bits_term(term: int, source: int, source_bytes: int, to: int, block_bytes: int, n: int) -> None:
    """One bit of 32 bytes into one word."""
    shift = load_i64(term + _SHIFT)
    for b in range(n):
        p = source + b * source_bytes
        first, second = (load_u64(p) >> shift) & LOW_BITS, (load_u64(p + 8) >> shift) & LOW_BITS
        third, fourth = (load_u64(p + 16) >> shift) & LOW_BITS, (load_u64(p + 24) >> shift) & LOW_BITS
        quads = first | (second << 2) | (third << 4) | (fourth << 6)
        store_i32(to + b * block_bytes, quads | (quads >> 31))


@inline
def unpack_row(
    program: int, terms: int, group: int, row: int, block_bytes: int, to: int, source_bytes: int, n_blocks: int
) -> None:
    """One row of a packed group as it was in the file, by an `unpack_program`, rounded up to eight bytes with zeros."""
    for at in range(0, n_blocks * source_bytes, 8):
        store_i64(to + at, 0)
    for t in range(terms):
        term = program + 8 * TERM_WORDS * t
        source = group + load_i64(term + _SOURCE) + row * load_i64(term + _UNIT)
        kind, place = load_i64(term), to + load_i64(term + _TO)
        if kind == WORD:
            word_term(term, source, block_bytes, place, source_bytes, n_blocks)
        elif kind == HALF:
            half_term(term, source, block_bytes, place, source_bytes, n_blocks)
        else:
            byte_term(term, source, block_bytes, place, source_bytes, n_blocks)
