"""AMD machine code, as Triton's assembly text has it."""

from __future__ import annotations

import re

from minfer_kernels.gpu.gate.flow import Code, Instruction

_LABEL = re.compile(r"^(\.?\w+):")
_LINE = re.compile(r"^\s+(?P<opcode>[sv]_\w+|ds_\w+|global_\w+|buffer_\w+|flat_\w+|scratch_\w+)\b(?P<operands>[^;]*)")
_WIDTHS = {"dwordx4": 128, "dwordx3": 96, "dwordx2": 64, "dword": 32, "ushort": 16, "short": 16, "ubyte": 8, "sbyte": 8}
_INTEGER = re.compile(
    r"v_(?:pk_)?(?:add|sub|subrev|mul|mad|lshl|lshr|ashr|and|or|xor|not|bfe|bfi|perm|alignbit|alignbyte|cmp|cndmask|min|max|"
    r"dot4|cvt_f32_i32|cvt_f32_u32|cvt_f32_ubyte|cvt_i32|cvt_u32|lshlrev|lshrrev|ashrrev|add3|or3|and_or|lshl_or|lshl_add|"
    r"add_lshl|xad|sad)\w*"
)
_FLOAT = re.compile(r"_(?:f16|f32|f64|bf16)(?:_e32|_e64|_sdwa|_dpp)?$")


def read_code(text: str) -> Code:
    """The instructions of the kernel; ValueError when there are none."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.split(".rodata", 1)[0].splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif one := _LINE.match(line):
            instructions.append(_instruction(one["opcode"], one["operands"].strip()))
    if not instructions:
        raise ValueError(f"no instructions in the assembly: {text[:200]!r}")
    known = tuple(i if i.target in labels else Instruction(i.opcode, None, i.falls) for i in instructions)
    return Code(known, labels)


def _instruction(opcode: str, operands: str) -> Instruction:
    if opcode == "s_endpgm":
        return Instruction(opcode, None, False)
    if opcode == "s_branch":
        return Instruction(opcode, operands, False)
    return Instruction(opcode, operands if opcode.startswith("s_cbranch") else None)


def read_usage(text: str) -> tuple[int, int, int]:
    """(vector registers, stack bytes, vector registers that spill) of the metadata; ValueError without the first."""
    found = dict(re.findall(r"\.(vgpr_count|private_segment_fixed_size|vgpr_spill_count):\s+(\d+)", text))
    if "vgpr_count" not in found:
        raise ValueError("the assembly has no .vgpr_count")
    number = {name: int(value) for name, value in found.items()}
    # Scalar registers give way to lanes of a vector register, not to memory; where they do, the stack isn't empty.
    spills = number.get("vgpr_spill_count", 0)
    return number["vgpr_count"], number.get("private_segment_fixed_size", 0), spills


def load_width(opcode: str) -> int | None:
    """Bits that a lane loads from global memory, or None for another instruction."""
    found = re.match(r"(?:global|buffer|flat)_load_(?:lds_)?(\w+?)(?:_d16\w*)?$", opcode)
    return _WIDTHS.get(found[1], 32) if found else None


def is_integer(opcode: str) -> bool:
    """Whether it computes integers in the vector unit."""
    return _INTEGER.match(opcode) is not None and (_FLOAT.search(opcode) is None or "cvt" in opcode)


def is_dot(opcode: str) -> bool:
    """A product of four bytes with four bytes."""
    return opcode.startswith("v_dot4")


def is_tensor(opcode: str) -> bool:
    """A matrix instruction."""
    return opcode.startswith(("v_mfma", "v_smfma"))
