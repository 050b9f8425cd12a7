"""Packing as data: what the `pack.pack` kernel does to every block of every row, for one layout.

A program is a list of *terms*; each moves a few bytes of the GGUF block to their place in the packed block.

    BYTE, HALF, WORD  a unit of 1, 2 or 4 bytes becomes (((unit >> shift) & mask) * factor & keep) ^ flip; where it
                      `joins`, that is flipped into what an earlier term stored there
    PAIR              8 bytes become two units of 4, as they are
    NIBBLES           8 bytes at `source` and 8 at `source + 16` become the low and high nibbles of two units of 4,
                      each taken from `shift` up
    CRUMBS            16 bytes: two bits of each, from `shift` up, become one unit of 4
    BITS              32 bytes: one bit of each, at `shift`, becomes one unit of 4

That is enough for copies, for bit planes in another order and for the small scales of K-quants: one kernel packs all
formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from functools import cache

import numpy as np
from numpy.typing import NDArray

from minfer_ir.formats import FORMATS, BlockFormat, Format
from minfer_kernels.cpu.weights.layouts import Field, WeightLayout, block_offset
from minfer_kernels.cpu.weights.moves import PLANE_GROUP, Move, moves_of, source_bytes

BYTE, HALF, WORD, PAIR, NIBBLES, CRUMBS, BITS = range(7)

_UNIT = {1: BYTE, 2: HALF, 4: WORD}
_PLANE = {4: NIBBLES, 2: CRUMBS, 1: BITS}
_ALL = 0xFFFFFFFF
# One bit of a nibble to each byte: a product whose partial terms never meet.
_SPREAD, _ONES = 0x00204081, 0x01010101
# Where the highest of six bits goes when 32 is taken off.
_THREE_BITS = 0xE0
_EXPONENT = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000}


@dataclass(frozen=True, slots=True)
class Term:
    """One term: `source` in bytes of the block, `to` in bytes of the packed block for row 0.

    Row r stands `unit * r` behind `to`, the second unit of a term `beside` bytes. `exponent` is the mask of the
    exponent's bits where a HALF or WORD is a number that must be finite, else 0.
    """

    kind: int
    unit: int
    source: int
    to: int
    shift: int = 0
    mask: int = _ALL
    factor: int = 1
    keep: int = _ALL
    flip: int = 0
    joins: int = 0
    exponent: int = 0
    beside: int = 0


TERM_WORDS = len(fields(Term))


def word_of(name: str) -> int:
    """The byte offset of a field within a term of the program."""
    return 8 * [f.name for f in fields(Term)].index(name)


@cache
def pack_program(layout: WeightLayout) -> NDArray[np.int64]:
    """The terms that pack a block into `layout`: int64 `[n, TERM_WORDS]`, the fields of `Term` in order."""
    return _program(term for move in moves_of(layout) for term in _terms(layout, move))


@cache
def unpack_program(layout: WeightLayout) -> NDArray[np.int64]:
    """The terms that turn a packed block back, bit for bit, into a GGUF block that was all zeros.

    Int64 `[n, TERM_WORDS]`, each a BYTE, HALF or WORD that `joins`; `source` is the packed block now, where row r
    stands `unit * r` behind row 0, and `to` the GGUF block.
    """
    forward = [Term(*map(int, words)) for words in pack_program(layout)]
    return _program(turned for term in forward for turned in _inverse(term))


@cache
def copy_program(fmt: Format) -> NDArray[np.int64]:
    """The terms that copy a block of `fmt` as it is, looking at its scales: int64 `[n, TERM_WORDS]`."""
    if not isinstance(fmt, BlockFormat):
        unit = fmt.block_bytes
        return _program([Term(_UNIT[unit], unit, 0, 0, exponent=_EXPONENT[fmt.name.lower()])])
    return _program(term for name in fmt.layout.names or () for term in _field_copies(fmt, name))


def _inverse(term: Term) -> Iterator[Term]:
    """What takes a term's result back to its source; every part of it is flipped into zeros."""
    if term.kind == PAIR:
        yield Term(WORD, 4, term.to, term.source, joins=1)
        yield Term(WORD, 4, term.to + term.beside, term.source + 4, joins=1)
    elif term.kind == NIBBLES:
        for word in range(2):
            for high in range(2):
                to = term.source + 4 * word + 16 * high
                yield _plane_term(term, term.to + word * term.beside, to, 4 * high, 4)
    elif term.kind in (CRUMBS, BITS):
        bits = 2 if term.kind == CRUMBS else 1
        for quad in range(8 // bits):
            yield _plane_term(term, term.to, term.source + 4 * quad, bits * quad, bits)
    elif term.factor >= _SPREAD:
        # a spread nibble: its four bits stand in four bytes, all as far up as it stood in quads
        for byte in range(4):
            place = term.shift + byte
            to = term.source + place // 8
            yield Term(BYTE, 4, term.to + byte, to, term.shift // 4, 1, 1 << place % 8, joins=1)
    elif term.factor == _THREE_BITS:
        mask, back = term.mask, 1 << term.shift
        yield Term(term.kind, term.unit, term.to, term.source, 5, mask, back, flip=mask * back, joins=1)
    else:
        shift, back = term.factor.bit_length() - 1, 1 << term.shift
        yield Term(term.kind, term.unit, term.to, term.source, shift, term.mask, back, joins=1)


def _plane_term(term: Term, source: int, to: int, shift: int, bits: int) -> Term:
    return Term(WORD, 4, source, to, shift, _ONES * ((1 << bits) - 1), 1 << term.shift, joins=1)


def _program(terms: Iterator[Term] | list[Term]) -> NDArray[np.int64]:
    program = np.array([astuple(term) for term in terms], np.int64)
    program.flags.writeable = False
    return program


def _field_copies(fmt: BlockFormat, name: str) -> Iterator[Term]:
    start, size = block_offset(fmt, name), fmt.layout[name].itemsize
    if name in fmt.scale_fields:
        yield Term(HALF, 2, start, start, exponent=_EXPONENT["f16"])
        return
    pairs = size // 8 * 8
    for at in range(start, start + pairs, 8):
        yield Term(PAIR, 4, at, at, beside=4)
    for at in range(start + pairs, start + size, 4):
        yield Term(WORD, 4, at, at)


def _terms(layout: WeightLayout, move: Move) -> Iterator[Term]:
    at = source_bytes(FORMATS[layout.format], move).start
    packed = [layout.field(name) for name in move.fields]
    field = packed[0]
    if move.unpacking == "k4":
        return _six_bit_scales(layout, at, field, packed[1])
    if move.unpacking == "q3":
        return _signed_six_bit_scales(layout, at, field)
    if move.group in (0, PLANE_GROUP.get(field.bits)):
        return _copies(layout, at, field)
    return _single_bits(layout, at, field) if move.group == 1 else _planes(layout, at, field, move.group)


def _copies(layout: WeightLayout, at: int, field: Field) -> Iterator[Term]:
    unit, count = field.unit, field.row_bytes // field.unit
    if unit == 4 and count % 2 == 0:
        for index in range(0, count, 2):
            yield Term(PAIR, 4, at + 4 * index, _place(layout, field, index), beside=4 * layout.rows)
        return
    exponent = _EXPONENT.get(field.kind, 0)
    for index in range(count):
        yield Term(_UNIT[unit], unit, at + unit * index, _place(layout, field, index), exponent=exponent)


def _planes(layout: WeightLayout, at: int, field: Field, group: int) -> Iterator[Term]:
    """Planes in runs of 32 or 64 bytes; the 32 (16 for two bits) elements of a packed run lie in one field of one."""
    bits = field.bits
    per_byte, run = 8 // bits, PLANE_GROUP[bits] * 8 // bits
    for first in range(0, field.row_bytes * per_byte, run):
        group_run, within = divmod(first, group * per_byte)
        part, byte = divmod(within, group)
        source, to = at + group_run * group + byte, _place(layout, field, first // (4 * per_byte))
        yield Term(_PLANE[bits], 4, source, to, bits * part, beside=4 * layout.rows)
        if bits == 4:
            second = _place(layout, field, first // 8 + 2)
            yield Term(NIBBLES, 4, source + 8, second, bits * part, beside=4 * layout.rows)


def _single_bits(layout: WeightLayout, at: int, field: Field) -> Iterator[Term]:
    """Bits in order, as Q5_0 has them, spread over bytes: four at a time."""
    for quad in range(field.row_bytes * 2):
        word, position = divmod(quad, 8)
        to, joins = _place(layout, field, word), int(position > 0)
        shift, factor, keep = 4 * position, _SPREAD << position, _ONES << position
        yield Term(WORD, 4, at + 4 * word, to, shift, 15, factor, keep, joins=joins)


def _six_bit_scales(layout: WeightLayout, at: int, scales: Field, mins: Field) -> Iterator[Term]:
    """Twelve bytes to eight scales and eight minimums (ggml-quants.c, `get_scale_min_k4`)."""
    for field, first in ((scales, at), (mins, at + 4)):
        for i in range(4):
            yield Term(BYTE, 1, first + i, _place(layout, field, i), mask=63)
            high = _place(layout, field, 4 + i)
            yield Term(BYTE, 1, at + 8 + i, high, shift=4 * (field is mins), mask=15)
            yield Term(BYTE, 1, first + i, high, shift=6, mask=3, factor=16, joins=1)


def _signed_six_bit_scales(layout: WeightLayout, at: int, scales: Field) -> Iterator[Term]:
    """Twelve bytes to sixteen scales less 32, in units of two: the low nibbles, then two bits each of the last four.

    Less 32 in two's complement: the upper bit of six is turned over and fills the three highest bits.
    """
    for index in range(8):
        j, pair = divmod(index, 2)
        low, high, to = at + 4 * (j % 2) + 2 * pair, at + 8 + 2 * pair, _place(layout, scales, index)
        yield Term(HALF, 2, low, to, shift=4 * (j // 2), mask=0x0F0F, flip=0xE0E0)
        yield Term(HALF, 2, high, to, shift=2 * j, mask=0x0101, factor=0x10, joins=1)
        yield Term(HALF, 2, high, to, shift=2 * j + 1, mask=0x0101, factor=_THREE_BITS, joins=1)


def _place(layout: WeightLayout, field: Field, index: int) -> int:
    return field.offset + layout.rows * field.unit * index
