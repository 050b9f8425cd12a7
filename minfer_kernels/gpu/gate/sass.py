"""NVIDIA machine code, as nvdisasm and cuobjdump show it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from minfer_kernels.gpu.gate.flow import Code, Instruction

_LABEL = re.compile(r"^(\.L\w+):")
_LINE = re.compile(
    r"^\s+/\*[0-9a-f]+\*/\s+(?P<predicate>@!?U?P\w+\s+)?(?P<opcode>[A-Z][A-Z0-9_.]*)\s*(?P<operands>[^;]*);"
)
_JUMP = re.compile(r"`\((\.L\w+)\)")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")
_WIDTHS = {"128": 128, "64": 64, "U16": 16, "S16": 16, "U8": 8, "S8": 8, "256": 256}

# of the integer units; IMAD.MOV and its like are moves
INTEGER = frozenset(
    (
        *("IADD", "IADD3", "IADD64", "VIADD", "VIADDMNMX", "IMAD", "IMUL", "XMAD", "LEA", "IABS", "IMNMX", "VIMNMX"),
        *("VIMNMX3", "LOP", "LOP3", "SHF", "SHL", "SHR", "PRMT", "SGXT", "BMSK", "BFE", "BFI", "POPC", "FLO", "BREV"),
        *("ISETP", "SEL", "IDP", "IDP4A", "VABSDIFF", "VABSDIFF4", "I2F", "I2FP", "F2I", "I2I", "I2IP"),
    )
)
TENSOR = frozenset(
    ("HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA")
)
SPILLS = frozenset(("LDL", "STL"))


def read_code(listing: str) -> Code:
    """The instructions of `nvdisasm -c`; ValueError when there are none."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in listing.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif one := _LINE.match(line):
            instructions.append(_instruction(one["predicate"], one["opcode"], one["operands"]))
    if not instructions:
        raise ValueError(f"no instructions in the listing: {listing[:200]!r}")
    return Code(tuple(instructions), labels)


def _instruction(predicate: str | None, opcode: str, operands: str) -> Instruction:
    kind = opcode.split(".", 1)[0]
    if kind in ("EXIT", "RET"):
        return Instruction(opcode, None, predicate is not None)
    jump = _JUMP.search(operands) if kind in ("BRA", "JMP") else None
    if jump is None:
        return Instruction(opcode)
    # a condition is a predicate in front, or an operand before the label ("BRA.U !UP0, `(.L_x_1)")
    return Instruction(opcode, jump[1], predicate is not None or "," in operands)


def read_usage(text: str) -> tuple[int, int]:
    """(registers, stack bytes) of `cuobjdump -res-usage`; ValueError when it says neither."""
    found = _USAGE.search(text)
    if found is None:
        raise ValueError(f"no register count in {text[:200]!r}")
    return int(found[1]), int(found[2])


def load_width(opcode: str) -> int | None:
    """Bits that a thread loads from global memory, or None for another instruction."""
    kind, *parts = opcode.split(".")
    if kind == "UBLKCP":
        return 128
    if kind not in ("LDG", "LDGSTS"):
        return None
    return next((_WIDTHS[part] for part in parts if part in _WIDTHS), 32)


def is_integer(opcode: str) -> bool:
    """Whether the integer units run it."""
    kind, *parts = opcode.split(".")
    return kind in INTEGER and not (kind == "IMAD" and "MOV" in parts)


def is_dot(opcode: str) -> bool:
    """A product of four bytes with four bytes."""
    return opcode.startswith(("IDP.4A", "IDP4A"))


def is_tensor(opcode: str) -> bool:
    """A matrix instruction."""
    return opcode.split(".", 1)[0] in TENSOR


def count(opcodes: Iterable[str], kinds: frozenset[str]) -> int:
    """How many are of these kinds."""
    return sum(opcode.split(".", 1)[0] in kinds for opcode in opcodes)
