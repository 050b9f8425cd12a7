"""KV cells on the GPU: the bytes that stores leave, and every way to read them, against the formats in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer_ir.formats import Q8_0_CELL
from minfer_ir.formats.cells import cell_values, stored_cells
from minfer_ir.testing.strategies import generators
from minfer_kernels.gpu.kernels import cells, kv_store

STORAGE = {"f32": np.float32, "f16": np.float16, "q8_0": np.uint8}
SPECIAL = (np.nan, np.inf, -np.inf, 3e38, 8.4e6, 8.32e6, 1e-38, 4e-37, 1e-45, 0.0, -0.0, 127.0, 0.5, 63.5)


@triton.jit
def read_elements(region, out, width, cell_bytes, ROWS: tl.constexpr, WIDE: tl.constexpr, LAYOUT: tl.constexpr):
    row, at = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDE)[None, :]
    found = cells.load_elements(cells.cell_row(region, row, cell_bytes), at, width, at < width, LAYOUT)
    tl.store(out + row * width + at, found, mask=at < width)


@triton.jit
def read_fours(region, out, width, cell_bytes, ROWS: tl.constexpr, WIDE: tl.constexpr, LAYOUT: tl.constexpr):
    row, word = tl.arange(0, ROWS)[:, None], tl.arange(0, WIDE // 4)[None, :]
    inside = (word * 4 < width) & (row >= 0)
    a, b, c, d = cells.load_four(cells.cell_row(region, row, cell_bytes), word, width, inside, LAYOUT)
    to = out + row * width + word * 4
    tl.store(to, a, mask=inside)
    tl.store(to + 1, b, mask=inside)
    tl.store(to + 2, c, mask=inside)
    tl.store(to + 3, d, mask=inside)


@pytest.mark.parametrize("reader", [read_elements, read_fours], ids=["elements", "fours"])
@pytest.mark.parametrize("layout", cells.LAYOUTS)
@pytest.mark.parametrize("width", [32, 160])
def test_reads_give_the_decoded_row(reader: Any, layout: str, width: int) -> None:
    values = np.random.default_rng(3).standard_normal((4, width), np.float32)
    stored = stored_cells(values, np.empty(0, STORAGE[layout]))
    raw = torch.from_numpy(stored.view(np.uint8).copy())
    out = torch.full((4, width), torch.nan)
    reader[(1,)](raw, out, width, raw.shape[1], ROWS=4, WIDE=256, LAYOUT=cells.LAYOUTS[layout])
    assert np.array_equal(out.numpy(), cell_values(stored).astype(np.float32))


@st.composite
def rows_to_store(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Rows whose blocks differ in magnitude by tens of powers of ten, with special numbers here and there."""
    rng, blocks = draw(generators()), draw(st.integers(1, 3))
    values = rng.standard_normal((2, blocks, 32)) * 10.0 ** rng.integers(-44, 39, (2, blocks, 1))
    with np.errstate(over="ignore", under="ignore"):
        rows = values.reshape(2, -1).astype(np.float32)
    for number in draw(st.lists(st.sampled_from(SPECIAL), max_size=3)):
        rows[rng.integers(2), rng.integers(rows.shape[1])] = number
    return rows


def halves() -> np.ndarray[Any, Any]:
    """A block whose scaled values lie on rounding borders and next to them."""
    borders = np.linspace(-126.5, 126.5, 31, dtype=np.float32)
    return np.concatenate([[np.float32(127)], borders, [np.float32(127)], np.nextafter(borders, np.float32(0))])[None]


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@settings(max_examples=60)
@given(rows=rows_to_store())
def test_packed_cells_have_the_bytes_of_the_format(rows: np.ndarray[Any, Any]) -> None:
    assert np.array_equal(store(rows, "q8_0"), Q8_0_CELL.encode(rows))


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_rounding_borders_go_away_from_zero() -> None:
    assert np.array_equal(store(halves(), "q8_0"), Q8_0_CELL.encode(halves()))


def test_float16_cells_round_half_to_even() -> None:
    rows = (1 + np.arange(64, dtype=np.float32) * np.float32(2**-11))[None]
    assert np.array_equal(store(rows, "f16"), rows.astype(np.float16).view(np.uint8))


def test_addresses_pass_two_to_the_31() -> None:
    cell, row_bytes = 3 << 20, 1024
    region = torch.zeros(1, dtype=torch.uint8)
    at = torch.zeros(1, dtype=torch.int64)
    address[(1,)](region, at, cell, row_bytes)
    assert at.item() == region.data_ptr() + cell * row_bytes


@triton.jit
def address(region, out, cell, cell_bytes):
    tl.store(out, cells.cell_row(region, cell, cell_bytes).to(tl.int64))


def store(rows: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    """The bytes of cells 2, 0, ... that rows were stored into; cells that nothing went into stay as they were."""
    n, width = rows.shape
    like = stored_cells(rows[:1] * 0, np.empty(0, STORAGE[layout]))
    cell_bytes = like.shape[1] * like.itemsize
    region = torch.full((3, cell_bytes), 0xA5, dtype=torch.uint8)
    at = torch.tensor([2, 0][:n], dtype=torch.int32)
    kv_store.store[(2, triton.cdiv(width, 64))](
        torch.from_numpy(rows.copy()), region, at, torch.tensor([n], dtype=torch.int32), width, width, cell_bytes,
        LAYOUT=cells.LAYOUTS[layout], BLOCKS=2,
    )  # fmt: skip
    kept = [i for i in range(3) if i not in at.tolist()]
    assert (region[kept] == 0xA5).all()
    return region.numpy()[at.numpy()]
