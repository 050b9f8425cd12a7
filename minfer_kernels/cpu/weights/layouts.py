"""Packed weight layouts as data: where the quants and scales of eight or sixteen interleaved rows lie.

A matmul computes as many output rows at once as a vector has lanes (`Isa.lanes`), so that many GGUF rows are stored
as one *group*: for every block of the row, ascending, one *group block* holding the fields of that block for all its
rows. Inside a field the rows are interleaved in units: unit 0 of every row, unit 1 of every row, and so on. A unit
is four bytes for quants (four numbers of one row beside each other are what the dot-product instructions
take), one number for scales, and a pair of numbers for the small scales of K-quants.

Bit fields are kept in *planes*: quants of 4, 2 and 1 bits, in runs of 32 elements. A run of 32 quants is eight
*quads* of four elements; a plane stores quad after quad, as many in one unit as its bytes have room for:

    bits 4   16 bytes a run: quad g in the low nibbles, quad g + 4 in the high nibbles of unit g (0-3)
    bits 2    8 bytes a run: quads 4u, 4u + 1, 4u + 2, 4u + 3 from the lowest two bits up in unit u (0-1)
    bits 1    4 bytes a run: quad g in bit g
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from minfer_ir.formats import BlockFormat

GROUP_ROWS = (8, 16)
"""Rows in a group: the float32 lanes of a 256-bit or 512-bit vector."""

RUN = 32
"""Elements in a run of a bit plane."""

FieldSpec: TypeAlias = "tuple[str, str, int, int]"
"""Name, number type, numbers per row and block, bytes of a unit."""

_BITS = {"u1": 1, "u2": 2, "u4": 4, "u8": 8, "i8": 8, "f16": 16, "bf16": 16, "f32": 32}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a group block: `count` numbers of type `kind` for each of `rows`, in units of `unit` bytes.

    `offset` counts bytes from the start of the group block.
    """

    name: str
    kind: str
    count: int
    unit: int
    offset: int
    rows: int

    @property
    def bits(self) -> int:
        """Bits of one number."""
        return _BITS[self.kind]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row in one block."""
        return self.count * self.bits // 8

    @property
    def nbytes(self) -> int:
        """Bytes of all rows in one block."""
        return self.rows * self.row_bytes

    @property
    def unit_bytes(self) -> int:
        """Bytes of one unit of all rows."""
        return self.rows * self.unit


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """How the rows of one weight format are packed, and which activations its kernel takes.

    `block` is in elements, `block_bytes` counts one group block (all rows). `activation` is the format of
    the other operand: `f32`, `Q8A32` or `Q8A256`.
    """

    name: str
    format: str
    rows: int
    block: int
    block_bytes: int
    activation: str
    fields: tuple[Field, ...]

    def field(self, name: str) -> Field:
        """The field called `name`; KeyError when the layout has none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(f"layout {self.name} has no field {name}")

    def has(self, name: str) -> bool:
        """Whether there is a field called `name`."""
        return any(field.name == name for field in self.fields)

    def groups(self, n: int) -> int:
        """Groups that hold `n` rows; the last one is padded with rows of zero bytes."""
        return -(-n // self.rows)

    def group_bytes(self, k: int) -> int:
        """Bytes of a group of rows of `k` elements; ValueError when `k` is no whole number of blocks."""
        if k < 0 or k % self.block:
            raise ValueError(f"layout {self.name}: {k} columns are not a whole number of blocks of {self.block}")
        return k // self.block * self.block_bytes

    def nbytes(self, n: int, k: int) -> int:
        """Bytes of a packed `[n, k]` weight."""
        return self.groups(n) * self.group_bytes(k)

    def __str__(self) -> str:
        fields = ", ".join(f"{f.name}: {f.count} {f.kind} at {f.offset} by {f.unit}" for f in self.fields)
        return f"{self.name} [{self.rows} rows x {self.block}, {self.block_bytes} bytes: {fields}]"


@dataclass(frozen=True, slots=True)
class _Plan:
    """A layout before the rows of its groups are chosen."""

    block: int
    activation: str
    fields: tuple[FieldSpec, ...]

    def laid_out(self, fmt: str, rows: int) -> WeightLayout:
        fields: list[Field] = []
        offset = 0
        for name, kind, count, unit in self.fields:
            fields.append(Field(name, kind, count, unit, offset, rows))
            offset += fields[-1].nbytes
        return WeightLayout(f"{fmt}x{rows}", fmt, rows, self.block, offset, self.activation, tuple(fields))


_D: FieldSpec = ("d", "f16", 1, 2)
_M: FieldSpec = ("m", "f16", 1, 2)
_DMIN: FieldSpec = ("dmin", "f16", 1, 2)


def _plane(kind: str, count: int) -> FieldSpec:
    return (f"q{_BITS[kind]}", kind, count, 4)


def _plan(block: int, activation: str, *fields: FieldSpec) -> _Plan:
    return _Plan(block, activation, fields)


_SMALL = (("scales", "u8", 8, 1), ("mins", "u8", 8, 1))

# The nibbles of Q2_K's `scales` stay together: the scale below, the minimum above.
_PLANS = {
    "F32": _plan(1, "f32", ("values", "f32", 1, 4)),
    "F16": _plan(1, "f32", ("values", "f16", 1, 2)),
    "BF16": _plan(1, "f32", ("values", "bf16", 1, 2)),
    "Q4_0": _plan(32, "Q8A32", _plane("u4", 32), _D),
    "Q4_1": _plan(32, "Q8A32", _plane("u4", 32), _D, _M),
    "Q5_0": _plan(32, "Q8A32", _plane("u4", 32), _plane("u1", 32), _D),
    "Q5_1": _plan(32, "Q8A32", _plane("u4", 32), _plane("u1", 32), _D, _M),
    "Q8_0": _plan(32, "Q8A32", _plane("i8", 32), _D),
    "IQ4_NL": _plan(32, "Q8A32", _plane("u4", 32), _D),
    "Q2_K": _plan(256, "Q8A256", _plane("u2", 256), ("scales", "u8", 16, 2), _D, _DMIN),
    "Q3_K": _plan(256, "Q8A256", _plane("u2", 256), _plane("u1", 256), ("scales", "i8", 16, 2), _D),
    "Q4_K": _plan(256, "Q8A256", _plane("u4", 256), *_SMALL, _D, _DMIN),
    "Q5_K": _plan(256, "Q8A256", _plane("u4", 256), _plane("u1", 256), *_SMALL, _D, _DMIN),
    "Q6_K": _plan(256, "Q8A256", _plane("u4", 256), _plane("u2", 256), ("scales", "i8", 16, 2), _D),
}
"""By GGML name. Scales of K-quants are unpacked to whole bytes."""


@cache
def layout_of(fmt: str, rows: int) -> WeightLayout:
    """The layout of the weight format with GGML name `fmt` in groups of `rows`, 8 or 16.

    Raises:
        ValueError: the CPU backend packs no such format, or no such groups.
    """
    if rows not in GROUP_ROWS:
        raise ValueError(f"weights are packed in groups of {' or '.join(map(str, GROUP_ROWS))} rows, not {rows}")
    return _plan_of(fmt).laid_out(fmt, rows)


def _plan_of(fmt: str) -> _Plan:
    if fmt not in _PLANS:
        raise ValueError(f"no packed layout for weight format {fmt}; there are {', '.join(_PLANS)}")
    return _PLANS[fmt]


def activation_format(fmt: str) -> str:
    """Name of the activation format that a matmul with weights of GGML name `fmt` takes: f32, Q8A32 or Q8A256."""
    return _plan_of(fmt).activation


def block_offset(fmt: BlockFormat, name: str) -> int:
    """Where the field `name` starts in a GGUF block, in bytes; KeyError when the block has none."""
    offsets = {field: place[1] for field, place in (fmt.layout.fields or {}).items()}
    return offsets[name]


def packing(layout: WeightLayout) -> str:
    """The constants that kernels over weights packed so are made for: format and rows of a group."""
    return f"{layout.format.lower()},{layout.rows}"


def matmul_kernel(layout: WeightLayout) -> str:
    """Name of the kernel that multiplies with weights packed so."""
    return f"matmul.matmul[{packing(layout)}]"


def packed_rows_kernel(layout: WeightLayout) -> str:
    """Name of the kernel that takes rows out of their groups and decodes them."""
    return f"get_rows.packed[{layout.format.lower()},{layout.rows}]"


def get_rows_kernel(fmt: str) -> str:
    """Name of the kernel that gathers and decodes rows of a table of GGML name `fmt`, as they lie in a GGUF file."""
    return f"get_rows.get_rows[{fmt.lower()}]"
