"""Regrouping the bit planes of quants, many blocks at once.

A plane of `bits`-wide numbers comes in runs of `group` bytes: the lowest field of all bytes of the run holds
its first `group` numbers, the next field the next, and so on. GGUF uses groups of 32 or 64 bytes (and of 1 for
the fifth bits of Q5_0), packed layouts those of `moves.PLANE_GROUP`.

Four numbers make a *quad*, one per byte of a uint32. Arrays are `[words, blocks]`, so that every numpy
operation runs along many blocks: packing Q5_0, Q3_K and Q5_K takes half to a third of what byte planes took.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

# One bit of a nibble to each byte, and back: products whose partial terms never meet.
_SPREAD, _GATHER = np.uint32(0x00204081), np.uint32(0x10204080)
_ONES = np.uint32(0x01010101)


def regroup(words: Words, bits: int, group: int, new_group: int) -> Words:
    """Planes `[words, blocks]` stored in runs of `group` bytes, stored anew in runs of `new_group` bytes."""
    regrouped = np.zeros_like(words)
    for quad in range(len(words) * 8 // bits):
        _put_quad(regrouped, quad, bits, new_group, _take_quad(words, quad, bits, group))
    return regrouped


def _take_quad(words: Words, quad: int, bits: int, group: int) -> Words:
    if group == 1:
        word, shift = divmod(4 * quad, 32)
        return (((words[word] >> np.uint32(shift)) & np.uint32(15)) * _SPREAD) & _ONES
    word, shift = _place(quad, bits, group)
    return (words[word] >> np.uint32(shift)) & np.uint32(0x01010101 * ((1 << bits) - 1))


def _put_quad(words: Words, quad: int, bits: int, group: int, numbers: Words) -> None:
    if group == 1:
        word, shift = divmod(4 * quad, 32)
        words[word] |= ((numbers * _GATHER) >> np.uint32(28)) << np.uint32(shift)
        return
    word, shift = _place(quad, bits, group)
    words[word] |= numbers << np.uint32(shift)


def _place(quad: int, bits: int, group: int) -> tuple[int, int]:
    """The word that holds a quad, and how far up its bytes the numbers stand."""
    run, within = divmod(4 * quad, group * 8 // bits)
    field, byte = divmod(within, group)
    return (run * group + byte) // 4, field * bits
