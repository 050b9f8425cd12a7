"""Tiles by device: which device stands for which, that every choice is compiled, and that each gives the values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attention_problems import attend, draw, place, wrong
from gpu_products import product

from minfer_ir.testing.op_matrix import run_variant
from minfer_ir.testing.tolerances import ATTENTION, HALF_ATTENTION
from minfer_kernels.gpu.backend import GpuBackend
from minfer_kernels.gpu.choice import Line, TileTable
from minfer_kernels.gpu.device import InterpretedDevice
from minfer_kernels.gpu.gate.inventory import configurations, tile_tables
from minfer_kernels.gpu.kernels.attention.choices import AttentionOptions
from minfer_kernels.gpu.kernels.cells import LAYOUTS as CELL_TYPES
from minfer_kernels.gpu.planes.layouts import LAYOUTS as WEIGHT_TYPES
from minfer_kernels.gpu.targets import GFX942, INTERPRETER, SM_80, SM_90, SM_120, TARGETS, Target, target_of

OPERANDS = {"weights": tuple(WEIGHT_TYPES), "cells": tuple(CELL_TYPES)}
OTHERS = (SM_80, SM_120, GFX942)
CPU = torch.device("cpu")
Taken = tuple[str, str, Line[Any]]
"""A kernel, a device's name, and the line of the kernel's table that it took."""


@pytest.mark.parametrize(
    ("capability", "hip", "target"),
    [
        ((8, 0), False, SM_80),
        ((8, 6), False, SM_120),
        ((8, 9), False, SM_120),
        ((9, 0), False, SM_90),
        ((10, 0), False, SM_80),
        ((12, 0), False, SM_120),
        ((9, 4), True, GFX942),
    ],
)
def test_a_device_takes_the_tiles_of_its_kind(capability: tuple[int, int], hip: bool, target: Target) -> None:
    """CDNA 3 calls itself 9.4, as if it were a Hopper with 227 KiB."""
    assert target_of(capability, hip) is target


def cases(table: TileTable[Any]) -> Iterator[tuple[str, int]]:
    """Operands and sizes on either side of every bound."""
    bounds = [line.up_to for line in table.lines if line.up_to is not None]
    for operand in OPERANDS[table.operand]:
        for size in (1, *bounds, *(bound + 1 for bound in bounds), 1 << 20):
            yield operand, size


def taken(table: TileTable[Any], target: Target) -> set[Taken]:
    found = {next(line for line in table.lines if line.takes(target, *case)) for case in cases(table)}
    return {(table.kernel, target.name, line) for line in found}


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> set[Taken]:
    """What is chosen during a test."""
    noted: set[Taken] = set()

    def choose(table: TileTable[Any], target: Target, operand: str, size: int) -> Any:
        line = next(line for line in table.lines if line.takes(target, operand, size))
        noted.add((table.kernel, target.name, line))
        return line.tile

    monkeypatch.setattr(TileTable, "choose", choose)
    return noted


def test_every_choice_of_a_device_is_one_that_is_compiled_for_it(chosen: set[Taken]) -> None:
    for target in TARGETS.values():
        configurations(target)
    wanted = {one for table in tile_tables() for target in TARGETS.values() for one in taken(table, target)}
    assert {kernel for kernel, _, _ in wanted} >= {"products.stream", "products.tiles", "attention.flash"}
    assert wanted - chosen == set()


def test_no_line_of_a_table_is_hidden_behind_others() -> None:
    everywhere = (*TARGETS.values(), INTERPRETER)
    for table in tile_tables():
        reached = {line for target in everywhere for _, _, line in taken(table, target)}
        assert [line for line in table.lines if line not in reached] == [], table.kernel


@pytest.mark.parametrize("table", tile_tables(), ids=lambda table: table.kernel)
def test_a_case_without_a_line_is_an_error(table: TileTable[Any]) -> None:
    empty = TileTable(table.kernel, table.operand, table.size, ())
    with pytest.raises(
        ValueError, match=rf"{table.kernel}: no tile for F16 {table.operand} and 3 {table.size} on sm_80"
    ):
        empty.choose(SM_80, "F16", 3)


def backend_with(target: Target, **options: Any) -> GpuBackend:
    return GpuBackend(CPU, on=InterpretedDevice(target), **options)


@pytest.mark.parametrize("target", OTHERS, ids=lambda target: target.name)
@pytest.mark.parametrize("fmt", ["F32", "Q6_K"])
@pytest.mark.parametrize(("kernel", "rows", "n"), [("products.stream", 3, 9), ("products.tiles", 70, 131)])
def test_products_in_the_tiles_of_every_device(
    target: Target, fmt: str, kernel: str, rows: int, n: int, chosen: set[Taken]
) -> None:
    backend = backend_with(target)
    cell = run_variant(backend, product(backend, "matmul_add", fmt, rows, n, 256, ragged=True))
    assert cell.verdict == "PASS", str(cell)
    assert {(took, name) for took, name, _ in chosen} == {(kernel, target.name)}


@pytest.mark.parametrize("target", OTHERS, ids=lambda target: target.name)
@pytest.mark.parametrize("cell_type", CELL_TYPES)
def test_attention_in_the_tiles_of_every_device(target: Target, cell_type: str, chosen: set[Taken]) -> None:
    p = draw(2, [range(60, 85)], 2, 1, 96, cell_type)
    placed = place(p, "causal")
    many = attend(p, placed, AttentionOptions(), target=target)
    assert many.sites() == ["tiles", "flash"]
    assert wrong(p, placed, many.out, ATTENTION if cell_type == "f32" else HALF_ATTENTION) is None
    assert {(kernel, name) for kernel, name, _ in chosen} == {("attention.flash", target.name)}
