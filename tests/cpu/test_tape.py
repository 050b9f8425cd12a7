"""Tapes: named operands, validation, listing."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from cpu_harness import BEST, Runner

from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.instruction import BARRIER, ITEM_BYTES, ITEMS, WEIGHTS
from minfer_kernels.cpu.runner.tape import NOTHING, Place, Stretch, TapeBuilder

Cpu = Mapping[Isa, Runner]


@pytest.fixture
def library(cpu: Cpu) -> KernelLibrary:
    return cpu[BEST].library


def scale_operands(**changed: Any) -> dict[str, Any]:
    return {
        "x": 2**33, "out": 2**34, "rows_at": 2**35, "width": 8, "x_stride": 32, "out_stride": 32, "factor": 0.5,
    } | changed  # fmt: skip


def test_a_missing_or_unknown_operand_is_named(library: KernelLibrary) -> None:
    operands = scale_operands(facto=1.0)
    del operands["factor"], operands["width"]
    with pytest.raises(
        TypeError, match=r"elementwise\.scale takes x, out, .* missing \['width', 'factor'\], unknown \['facto'\]"
    ):
        TapeBuilder(library).emit("elementwise.scale", **operands)


@pytest.mark.parametrize(
    ("operand", "value", "error"),
    [
        ("width", 8.0, TypeError),
        ("width", np.float32(8), TypeError),
        ("width", "8", TypeError),
        ("x", 2**63, ValueError),
        ("x", -(2**63) - 1, ValueError),
    ],
)
def test_a_word_that_is_no_int64_is_refused(library: KernelLibrary, operand: str, value: Any, error: type) -> None:
    with pytest.raises(error, match=f"operand {operand}"):
        TapeBuilder(library).emit("elementwise.scale", **scale_operands(**{operand: value}))


def test_an_immediate_must_fit_float32(library: KernelLibrary) -> None:
    for factor in (-1e300, "1"):
        with pytest.raises(ValueError, match=re.escape(f"operand factor = {factor!r} is no float32")):
            TapeBuilder(library).emit("elementwise.scale", **scale_operands(factor=factor))


def test_listing_reads_instruction_by_instruction(library: KernelLibrary) -> None:
    builder = TapeBuilder(library)
    first = scale_operands(x=Place(2**33, "hidden@b1+0x0"), out=Place(2**34, "scaled@b2+0x40"))
    second = scale_operands(x=Place(2**34, "scaled@b2+0x40"), out=Place(2**33, "again@b1+0x0"), factor=np.float32(2))
    builder.emit("elementwise.scale", **first, label="blk.0.scaled")
    builder.emit("elementwise.scale", barrier=False, **second)
    tape = builder.build()
    lines = [
        "   0  elementwise.scale x=hidden@b1+0x0 out=scaled@b2+0x40 rows_at=0x800000000 width=8 x_stride=32"
        " out_stride=32 factor=0.5 | barrier  ; blk.0.scaled",
        "   1  elementwise.scale x=scaled@b2+0x40 out=again@b1+0x0 rows_at=0x800000000 width=8 x_stride=32"
        " out_stride=32 factor=2",
    ]
    assert tape.listing() == lines
    assert tape.listing(1, 2) == lines[1:]
    assert len(tape) == 2
    assert tape.program[:, 2].tolist() == [1, 0]


def test_words_travel_in_the_kernel_s_order(library: KernelLibrary) -> None:
    builder = TapeBuilder(library)
    builder.emit("elementwise.scale", **dict(reversed(scale_operands(width=-3).items())))
    tape = builder.build()
    words = np.ctypeslib.as_array(ctypes.cast(int(tape.program[0, 1]), ctypes.POINTER(ctypes.c_int64)), (7,))
    half = int(np.float32(0.5).view(np.uint32))
    assert words.tolist() == [2**33, 2**34, 2**35, -3, 32, 32, half]


def test_an_empty_tape_runs(cpu: Cpu) -> None:
    tape = TapeBuilder(cpu[BEST].library).build()
    for n_threads in (1, 3):
        cpu[BEST].pool(n_threads).run(tape)
    assert tape.listing() == []


def test_an_instruction_says_which_weights_are_read_first_behind_it(library: KernelLibrary) -> None:
    first, second = Stretch(1 << 20, 3, 640), Stretch(1 << 21, 7, 64)
    builder = TapeBuilder(library)
    for weights in (NOTHING, first, second, NOTHING, NOTHING):
        builder.emit("elementwise.scale", weights=weights, **scale_operands())
    program = builder.build().program
    words = [WEIGHTS // 8, ITEMS // 8, ITEM_BYTES // 8]
    assert program[:, words].tolist() == [[*first], [*second], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert program[:, BARRIER // 8].tolist() == [1] * 5
