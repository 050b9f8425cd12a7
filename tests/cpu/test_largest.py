"""The kernels that look for the largest logits, against numpy on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_harness import CACHE, ISAS, guarded
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from minfer_kernels.cpu.compiler.features import Isa
from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.largest import Largest

Row = NDArray[np.float32]
LIBRARIES = {isa: KernelLibrary(isa, CACHE) for isa in ISAS}


def best_first(row: Row) -> list[int]:
    return [i for i in sorted(range(len(row)), key=lambda i: (-float(row[i]), i)) if row[i] > -np.inf]


def check(row: Row, k: int, isa: Isa) -> None:
    expected, look = best_first(row), Largest(LIBRARIES[isa], len(row), k)
    held = guarded(row)
    assert look.argmax(held) == (expected[0] if expected else -1)
    ids, values = look.top_k(held)
    assert ids.tolist() == sorted(expected[:k])
    assert values.tolist() == row[ids].tolist()


# Few different numbers: ties everywhere, also of 0.0 and -0.0.
TIED = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.25, 1e-45, -1e-45, 3e38, -3e38, -np.inf])


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=150, deadline=None)
@given(values=st.lists(TIED | st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=150),
       k=st.sampled_from([1, 2, 3, 40, 100]))  # fmt: skip
@example(values=[-np.inf] * 70, k=3)
@example(values=[1.0] * 130, k=65)
def test_ties_signs_and_edges(isa: Isa, values: list[float], k: int) -> None:
    check(np.array(values, np.float32), k, isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n", [257, 1000, 4099])
@pytest.mark.parametrize("k", [1, 40, 300, 1024])
@pytest.mark.parametrize("kind", ["random", "rising", "falling", "rounded", "equal"])
def test_rows_that_overflow_the_room_for_candidates(isa: Isa, n: int, k: int, kind: str) -> None:
    row = np.random.default_rng(n + k).standard_normal(n).astype(np.float32)
    shaped = {"rising": np.sort(row), "falling": -np.sort(row), "rounded": np.round(row), "equal": row * 0 + 1}
    check(shaped.get(kind, row), k, isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 63, 64, 199])
def test_what_is_not_finite_is_told(isa: Isa, bad: float, at: int) -> None:
    row = np.linspace(-1, 1, 200, dtype=np.float32)
    row[at] = bad
    look = Largest(LIBRARIES[isa], 200, 5)
    assert look.argmax(row) == -1
    assert len(look.top_k(row)[0]) == 0
    only_behind = Largest(LIBRARIES[isa], at, 5) if at else None
    assert only_behind is None or only_behind.argmax(row) == at - 1


def test_a_row_may_change_in_place_and_be_another() -> None:
    look = Largest(LIBRARIES[ISAS[0]], 3, 2)
    row = np.array([1, 5, 3], np.float32)
    assert look.argmax(row) == 1
    row[2] = 9
    assert look.argmax(row) == 2
    assert look.top_k(np.array([4, 4, 4, 9], np.float32))[0].tolist() == [0, 1]


def test_rows_it_cannot_read_and_k_out_of_range_are_refused() -> None:
    look = Largest(LIBRARIES[ISAS[0]], 3)
    for row in (np.zeros(2, np.float32), np.zeros(3), np.zeros((3, 1), np.float32), np.zeros(6, np.float32)[::2]):
        with pytest.raises(ValueError, match="expected 3 contiguous float32"):
            look.argmax(row)  # type: ignore[arg-type]
    for k in (0, 1025):
        with pytest.raises(ValueError, match=f"k is {k}, expected 1 to 1024"):
            Largest(LIBRARIES[ISAS[0]], 3, k)
