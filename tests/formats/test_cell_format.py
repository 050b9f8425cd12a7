"""Packed KV cells against gguf-py's Q8_0, whose bytes they hold in another order."""

from __future__ import annotations

import pickle

import gguf
import numpy as np
import pytest
from format_cases import seeds
from gguf import quants
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from minfer_ir.formats import Q8_0_CELL, Floats
from minfer_ir.types import TensorType, element_type

Q8_0 = gguf.GGMLQuantizationType.Q8_0


def in_gguf_order(cells: NDArray[np.uint8], n: int) -> NDArray[np.uint8]:
    """The blocks that a cell's planes came from: each scale, then its 32 quants."""
    blocks = n // 32
    scales = cells[:, n : n + 2 * blocks].reshape(len(cells), blocks, 2)
    return np.concatenate([scales, cells[:, :n].reshape(len(cells), blocks, 32)], axis=2).reshape(len(cells), -1)


def drawn(seed: int, n: int, exponent: int) -> Floats:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((5, n)).astype(np.float32) * np.float32(10.0**exponent)
    rows[1, : n // 2] = 0
    # Quotients that lie on a half: the largest is 127, so the others are x / 2.
    rows[2, :32] = np.float32(2.0**exponent) * np.arange(-31, 33, 2, dtype=np.float32) / 2
    rows[2, 0] = np.float32(127 * 2.0**exponent)
    return rows


@settings(max_examples=60, deadline=None)
@given(seed=seeds, n=st.sampled_from((32, 96, 128, 1024)), exponent=st.integers(-36, 4))
def test_cells_hold_the_bytes_of_gguf_blocks(seed: int, n: int, exponent: int) -> None:
    rows = drawn(seed, n, exponent)
    cells = Q8_0_CELL.encode(rows)
    theirs = quants.quantize(rows, Q8_0)
    np.testing.assert_array_equal(in_gguf_order(cells, n), theirs)
    np.testing.assert_array_equal(Q8_0_CELL.decode(cells), quants.dequantize(theirs, Q8_0))
    assert not cells[:, n + n // 16 :].any()


@pytest.mark.parametrize(("n", "nbytes"), [(32, 48), (64, 80), (128, 144), (192, 208), (1024, 1088)])
def test_a_cell_is_padded_to_sixteen_bytes(n: int, nbytes: int) -> None:
    assert Q8_0_CELL.row_bytes(n) == nbytes
    assert Q8_0_CELL.row_elements(nbytes) == n
    assert TensorType((7, n), element_type("q8_0")).nbytes == 7 * nbytes


def test_sizes_that_no_cell_has_are_refused() -> None:
    for n in (33, 48, -32):
        with pytest.raises(ValueError, match=f"a row of {n} elements"):
            Q8_0_CELL.row_bytes(n)
    for nbytes in (34, 49, 1089, -16):
        with pytest.raises(ValueError, match=f"a row of {nbytes} bytes"):
            Q8_0_CELL.row_elements(nbytes)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 8.4e6])
def test_what_no_block_holds_makes_its_scale_nan_and_leaves_the_others(bad: float) -> None:
    rows = np.ones((1, 96), np.float32)
    rows[0, 40] = bad
    quants_plane, scales = Q8_0_CELL.planes(Q8_0_CELL.encode(rows))
    assert scales.view(np.uint16)[0].tolist() == [0x2008, 0x7E00, 0x2008]
    assert quants_plane[0].tolist() == [127] * 32 + [0] * 32 + [127] * 32


def test_the_largest_value_that_fits_keeps_its_scale() -> None:
    rows = np.full((1, 32), 65504.0 * 127, np.float32)
    assert np.array_equal(Q8_0_CELL.decode(Q8_0_CELL.encode(rows)), rows)


def test_the_format_is_one_object_however_it_is_found() -> None:
    assert element_type("q8_0") is Q8_0_CELL
    assert pickle.loads(pickle.dumps(Q8_0_CELL)) is Q8_0_CELL
