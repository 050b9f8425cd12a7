"""Attention kernels in the interpreter: against float64, and the same bits wherever bits are promised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from attention_problems import SMALL, attend, draw, place, wrong
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from minfer_ir.testing.tolerances import ATTENTION, HALF_ATTENTION, Tolerance
from minfer_kernels.gpu.kernels.attention.choices import SplitChoice

MODES = ("causal", "span", "map")
CELL_TYPES = ("f32", "f16", "q8_0")
GEOMETRIES = {"f32": (4, 2, 20), "f16": (7, 1, 64), "q8_0": (6, 2, 96)}
"""Query heads, KV heads and head size that a cell type is tried with where it doesn't matter."""
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def tiled(cell_type: str) -> Tolerance:
    """What tiles of many rows are held to."""
    return ATTENTION if cell_type == "f32" else HALF_ATTENTION


@pytest.mark.parametrize("cell_type", CELL_TYPES)
@pytest.mark.parametrize("mode", MODES)
def test_few_rows_are_as_exact_as_float32_sums(mode: str, cell_type: str) -> None:
    p = draw(1, [(33, 70)], *GEOMETRIES[cell_type], cell_type)
    placed = place(p, mode, bucket=4)
    run = attend(p, placed)
    assert run.sites() == ["split"]
    assert wrong(p, placed, run.out, ATTENTION) is None


@pytest.mark.parametrize("cell_type", CELL_TYPES)
@pytest.mark.parametrize("mode", MODES)
def test_many_rows_are_as_exact_as_float16_products(mode: str, cell_type: str) -> None:
    p = draw(2, [range(14, 35)], *GEOMETRIES[cell_type], cell_type)
    placed = place(p, mode, bucket=32)
    run = attend(p, placed)
    assert run.sites() == ["tiles", "flash"]
    assert wrong(p, placed, run.out, tiled(cell_type)) is None


@pytest.mark.parametrize("cell_type", CELL_TYPES)
@pytest.mark.parametrize("rows", [1, 5])
def test_every_mode_gives_the_same_bits_over_the_same_positions(cell_type: str, rows: int) -> None:
    p = draw(3, [range(40 - rows, 40)], *GEOMETRIES[cell_type], cell_type)
    first, *others = (attend(p, place(p, mode, shift)).out for mode, shift in zip(MODES, (0, 7, 2), strict=True))
    assert all(np.array_equal(first, other) for other in others)


FOUND = (Phase.explicit, Phase.generate)
"""Without shrinking: an example takes up to a second."""
AWKWARD = (0, 1, 15, 16, 17, 31, 32, 33, 64, 65)
"""Lengths around the edges of blocks and parts."""


@st.composite
def geometries(draw_: st.DrawFn, cell_type: str) -> tuple[int, int, int]:
    dims = (32, 64, 96) if cell_type == "q8_0" else (1, 20, 64)
    group, kv_heads = draw_(st.sampled_from([(1, 1), (2, 1), (3, 2), (7, 1), (9, 1)]))
    return group * kv_heads, kv_heads, draw_(st.sampled_from(dims))


@settings(max_examples=12, phases=FOUND)
@given(data=st.data())
def test_drawn_windows_of_few_rows(data: st.DataObject) -> None:
    cell_type = data.draw(st.sampled_from(CELL_TYPES))
    mode = data.draw(st.sampled_from(MODES))
    lengths = data.draw(st.lists(st.sampled_from(AWKWARD), min_size=1, max_size=2))
    sequences = [lengths] if mode == "causal" else [[n] for n in lengths]
    p = draw(4, sequences, *data.draw(geometries(cell_type)), cell_type)
    placed = place(p, mode)
    choice = SplitChoice(split=32, block=16, matrix=data.draw(st.booleans()))
    assert wrong(p, placed, attend(p, placed, replace(SMALL, split=choice)).out, ATTENTION) is None


@settings(max_examples=8, phases=FOUND)
@given(data=st.data())
def test_drawn_steps_of_prompts_and_decode_rows(data: st.DataObject) -> None:
    """Sequences of any number of rows one after another; each tile keeps to its own."""
    cell_type = data.draw(st.sampled_from(CELL_TYPES))
    mode = data.draw(st.sampled_from(["span", "map"]))
    starts = data.draw(st.lists(st.sampled_from((0, 1, 15, 31)), min_size=2, max_size=3))
    counts = [data.draw(st.sampled_from((1, 2, 5, 16, 17))) for _ in starts]
    sequences = [range(s, s + n) for s, n in zip(starts, counts, strict=True)]
    p = draw(5, sequences, *data.draw(geometries(cell_type)), cell_type)
    placed = place(p, mode, bucket=64)
    options = replace(SMALL, decode_rows_apart=data.draw(st.booleans()))
    assert wrong(p, placed, attend(p, placed, options).out, tiled(cell_type)) is None


@pytest.mark.parametrize("cell_type", CELL_TYPES)
def test_a_decode_row_has_the_bits_that_it_has_alone(cell_type: str) -> None:
    """Kept apart beside a prompt; beside other decode rows always; up to `split_rows` rows of a sequence."""
    p = draw(6, [(40,), range(3, 23), (70, 71), (1,)], *GEOMETRIES[cell_type], cell_type)
    placed = place(p, "map", bucket=32)
    mixed = attend(p, placed, replace(SMALL, decode_rows_apart=True))
    assert mixed.sites() == ["tiles", "flash", "split"]
    assert wrong(p, placed, mixed.out, tiled(cell_type)) is None
    for sequence, row, at in ((0, 0, 0), (2, 0, 21), (2, 1, 22), (3, 0, 23)):
        alone = p.only(sequence, row)
        assert np.array_equal(attend(alone, place(alone, "causal")).out[0], mixed.out[at])
    kept = {name: [getattr(p, name)[i] for i in (0, 3)] for name in ("k", "v", "lengths")}
    few = replace(p, q=p.q[[0, 23]], **kept)
    assert np.array_equal(attend(few, place(few, "span", bucket=4)).out, mixed.out[[0, 23]])


def test_without_the_promise_every_row_is_in_a_tile() -> None:
    p = draw(7, [(40,), range(3, 9)], *GEOMETRIES["f16"], "f16")
    assert attend(p, place(p, "span", bucket=8)).sites() == ["tiles", "flash"]


@pytest.mark.parametrize("cell_type", CELL_TYPES)
@pytest.mark.parametrize("bucket", [2, 8])
def test_rows_of_no_cells_are_zero(cell_type: str, bucket: int) -> None:
    p = draw(8, [(0,), (5,)], *GEOMETRIES[cell_type], cell_type)
    out = attend(p, place(p, "span", bucket=bucket)).out
    assert not out[0].any() and out[1].all()


def test_who_merges_the_parts_doesn_t_matter() -> None:
    """A launch of its own or the last program, again and again, in as many launches as memory asks: the same bits."""
    p = draw(9, [(100,), (70,), (5,)], *GEOMETRIES["f16"], "f16")
    placed = place(p, "span")
    last = attend(p, placed, replace(SMALL, finish="last"), times=3)
    own = attend(p, placed, replace(SMALL, finish="kernel"))
    assert last.sites() == ["split"] and own.sites() == ["split", "merge"]
    assert np.array_equal(last.out, own.out)
    one_row = 4 * 7 * 6 * (64 + 2)
    for finish, sites in (("last", ["split"]), ("kernel", ["split", "merge"])):
        options: Any = replace(SMALL, finish=finish, partial_bytes=one_row)
        bounded = attend(p, placed, options)
        assert bounded.sites() == sites * 3
        assert np.array_equal(bounded.out, last.out)


def test_listed_rows_come_round_in_turns() -> None:
    """More decode rows in a step than memory for parts holds."""
    p = draw(10, [*((n,) for n in (3, 40, 65, 9)), range(2, 9)], *GEOMETRIES["f16"], "f16")
    placed = place(p, "span", bucket=16)
    wide = attend(p, placed, replace(SMALL, decode_rows_apart=True))
    narrow = attend(p, placed, replace(SMALL, decode_rows_apart=True, partial_bytes=3 * 4 * 7 * 6 * (64 + 2)))
    assert len(narrow.sites()) > len(wide.sites())
    assert np.array_equal(narrow.out, wide.out)


def test_packed_scores_are_the_same_by_matrix_and_by_single_products() -> None:
    p = draw(11, [(70,)], 7, 1, 96, "q8_0")
    placed = place(p, "causal")
    by = [attend(p, placed, replace(SMALL, split=SplitChoice(split=32, block=16, matrix=m))).out for m in (True, False)]
    assert np.array_equal(*by)


@pytest.mark.parametrize("cell_type", CELL_TYPES)
@pytest.mark.parametrize("bucket", [1, 8])
def test_a_cell_that_is_not_a_number_shows(cell_type: str, bucket: int) -> None:
    p = draw(12, [(20,)], *GEOMETRIES[cell_type], cell_type)
    for values in (p.k[0], p.v[0]):
        kept = values[7].copy()
        values[7] = 255 if values.dtype == np.uint8 else np.nan
        assert np.isnan(attend(p, place(p, "causal", bucket=bucket)).out[0, 0]).any()
        values[7] = kept
