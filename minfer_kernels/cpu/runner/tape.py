"""Tapes: programs of kernel calls, as data that native threads walk without Python.

`minfer_kernels.cpu.runner.instruction` says what an instruction's words are.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import index
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from minfer_kernels.cpu.compiler.kernel import Operand
from minfer_kernels.cpu.compiler.library import KernelLibrary, LoadedKernel
from minfer_kernels.cpu.runner.instruction import INSTRUCTION_BYTES


class Place(int):
    """An address that knows what lies there: an operand like any other, shown in listings as `text`."""

    text: str

    def __new__(cls, address: int, text: str) -> Place:
        """`address` as an int, with what a listing shows for it."""
        place = super().__new__(cls, address)
        place.text = text
        return place


class Stretch(NamedTuple):
    """Memory that the threads of a call read once, each its own items: `items` times `item_bytes` from `address` on."""

    address: int
    items: int
    item_bytes: int


NOTHING = Stretch(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One kernel call: operand values by name, in the kernel's order; `label` says what it computes.

    `weights` are those that it reads first, if any.
    """

    kernel: str
    operands: Mapping[str, int | float]
    barrier: bool
    label: str
    weights: Stretch = NOTHING


class Tape:
    """A program ready to run; keeps its argument blocks and kernels alive, not the buffers they point to."""

    def __init__(self, instructions: list[Instruction], kernels: Mapping[str, LoadedKernel]) -> None:
        self.instructions = tuple(instructions)
        self._kernels = dict(kernels)
        words = [_words(kernels[i.kernel].operands, i.operands) for i in instructions]
        offsets = np.cumsum([0, *(len(block) for block in words)])
        self._blocks = np.array([word for block in words for word in block], np.int64)
        self._program = np.zeros((len(instructions), INSTRUCTION_BYTES // 8), np.int64)
        ahead = _weights_ahead(instructions)
        for row, instruction, offset, weights in zip(self._program, instructions, offsets, ahead, strict=False):
            block = self._blocks.ctypes.data + 8 * int(offset)
            row[:3] = kernels[instruction.kernel].address, block, instruction.barrier
            row[3:6] = weights

    @cached_property
    def address(self) -> int:
        """Where the instructions lie."""
        return self._program.ctypes.data

    def __len__(self) -> int:
        return len(self.instructions)

    @property
    def program(self) -> NDArray[np.int64]:
        """The instructions as the walker reads them, `[n, INSTRUCTION_BYTES / 8]` int64."""
        return self._program

    def listing(self, start: int = 0, stop: int | None = None) -> list[str]:
        """One readable line per instruction of [start, stop), operands by what lies there."""
        numbered = list(enumerate(self.instructions))
        return [_line(number, instruction) for number, instruction in numbered[start:stop]]


class TapeBuilder:
    """Collects kernel calls with named operands, then loads the kernels and packs the tape."""

    def __init__(self, library: KernelLibrary) -> None:
        self._library = library
        self._instructions: list[Instruction] = []

    def emit(
        self,
        kernel: str,
        *,
        barrier: bool = True,
        label: str = "",
        weights: Stretch = NOTHING,
        **operands: int | float,
    ) -> None:
        """Append a call of `kernel`; TypeError when the operands are not exactly the kernel's.

        With `barrier=False` the next instruction may start on one thread before this one ends on another. `weights`
        are those that the call reads first: threads that wait before it ask for them.
        """
        declared = self._library.operands(kernel)
        _check_operands(kernel, declared, operands)
        ordered = {o.name: operands[o.name] for o in declared}
        self._instructions.append(Instruction(kernel, ordered, barrier, label, weights))

    def meet(self) -> None:
        """Make all threads meet after the last call so far."""
        if self._instructions:
            self._instructions[-1] = replace(self._instructions[-1], barrier=True)

    def build(self) -> Tape:
        """The tape; compiles the kernels that are not cached yet."""
        return Tape(self._instructions, self._library.load(i.kernel for i in self._instructions))


def _weights_ahead(instructions: list[Instruction]) -> list[Stretch]:
    """For each instruction the weights that are read first behind it."""
    found, weights = list[Stretch](), NOTHING
    for instruction in reversed(instructions):
        found.append(weights)
        weights = weights if instruction.weights is NOTHING else instruction.weights
    return found[::-1]


def _check_operands(kernel: str, declared: tuple[Operand, ...], given: Mapping[str, int | float]) -> None:
    names = [o.name for o in declared]
    missing = [n for n in names if n not in given]
    unknown = [n for n in given if n not in names]
    if missing or unknown:
        raise TypeError(f"kernel {kernel} takes {', '.join(names)}; missing {missing}, unknown {unknown}")
    for operand in declared:
        _word(operand, given[operand.name])


def _words(operands: tuple[Operand, ...], values: Mapping[str, int | float]) -> list[int]:
    return [_word(o, values[o.name]) for o in operands]


def _word(operand: Operand, value: int | float) -> int:
    if operand.word == "f32":
        return _f32_word(operand.name, value)
    try:
        word = index(value)  # pyright: ignore[reportArgumentType], floats are refused below
    except TypeError:
        raise TypeError(f"operand {operand.name} is an int64 word, got {value!r}") from None
    if not -(2**63) <= word < 2**63:
        raise ValueError(f"operand {operand.name} = {word} does not fit an int64 word")
    return word


def _f32_word(name: str, value: float) -> int:
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except (struct.error, OverflowError):
        raise ValueError(f"operand {name} = {value!r} is no float32") from None


def _line(number: int, instruction: Instruction) -> str:
    operands = " ".join(f"{name}={_shown(v)}" for name, v in instruction.operands.items())
    barrier = " | barrier" if instruction.barrier else ""
    label = f"  ; {instruction.label}" if instruction.label else ""
    return f"{number:4d}  {instruction.kernel} {operands}{barrier}{label}"


def _shown(value: int | float) -> str:
    if isinstance(value, Place):
        return value.text
    if isinstance(value, float | np.floating):
        return f"{value:g}"
    # Addresses on every 64-bit system lie above 4 GiB; counts and strides do not.
    return f"{value:#x}" if value >= 1 << 32 else str(value)
