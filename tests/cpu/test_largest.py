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
from minfer_kernels.cpu.runner.chooser import Chooser
from minfer_kernels.cpu.runner.largest import CHUNK, Largest
from minfer_models.bench.sampling.cases import Share
from minfer_models.sampling import Sampler, SamplingParams
from minfer_models.sampling.largest import NumpyLargest

Row = NDArray[np.float32]
LIBRARIES = {isa: KernelLibrary(isa, CACHE) for isa in ISAS}


def best_first(row: Row) -> list[int]:
    return [i for i in sorted(range(len(row)), key=lambda i: (-float(row[i]), i)) if row[i] > -np.inf]


def check(row: Row, k: int, isa: Isa) -> None:
    expected, look = best_first(row), Largest(LIBRARIES[isa], len(row), k)
    held = guarded(row)
    assert look.argmax(held) == (expected[0] if expected else -1)
    found = look.top_k(held)
    assert found is not None
    ids, values = found
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
    assert look.top_k(row) is None
    only_behind = Largest(LIBRARIES[isa], at, 5) if at else None
    assert only_behind is None or only_behind.argmax(row) == at - 1


def test_a_row_may_change_in_place_and_be_another() -> None:
    look = Largest(LIBRARIES[ISAS[0]], 3, 2)
    row = np.array([1, 5, 3], np.float32)
    assert look.argmax(row) == 1
    row[2] = 9
    assert look.argmax(row) == 2
    found = look.top_k(np.array([4, 4, 4, 9], np.float32))
    assert found is not None
    assert found[0].tolist() == [0, 1]


def test_rows_it_cannot_read_and_k_out_of_range_are_refused() -> None:
    look = Largest(LIBRARIES[ISAS[0]], 3)
    for row in (np.zeros(2, np.float32), np.zeros(3), np.zeros((3, 1), np.float32), np.zeros(6, np.float32)[::2]):
        with pytest.raises(ValueError, match="expected 3 contiguous float32"):
            look.argmax(row)  # type: ignore[arg-type]
    for k in (0, 1025):
        with pytest.raises(ValueError, match=f"k is {k}, expected 1 to 1024"):
            Largest(LIBRARIES[ISAS[0]], 3, k)


SIZES = st.sampled_from([1, 7, 8, 9, 63, 64, 65, 130, 1000])


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=60, deadline=None)
@given(n=SIZES, floor=st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 9.0]), seed=st.integers(0, 99))
def test_those_above_a_floor(isa: Isa, n: int, floor: float, seed: int) -> None:
    row = np.random.default_rng(seed).standard_normal(n).round(1).astype(np.float32)
    row[seed % n] = -np.inf
    ids, values = Largest(LIBRARIES[isa], n).above(guarded(row), floor)
    assert ids.tolist() == [i for i in range(n) if row[i] > floor]
    assert values.tolist() == row[ids].tolist()


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=60, deadline=None)
@given(n=SIZES, width=st.sampled_from([0.01, 1.0, 9.0, 200.0]), scale=st.sampled_from([1.0, 0.37, 4.0, 1e30, 1e-30]),
       seed=st.integers(0, 99))  # fmt: skip
def test_masses_have_the_bits_of_numpy_and_are_sums_of_exponentials(
    isa: Isa, n: int, width: float, scale: float, seed: int
) -> None:
    row = (np.random.default_rng(seed).standard_normal(n) * width).astype(np.float32)
    row[seed % n] = -np.inf
    if n == 1:
        row[0] = 3
    top = float(row.max())
    sums = Largest(LIBRARIES[isa], n).masses(guarded(row), top, scale)
    assert sums.tobytes() == NumpyLargest(n, 1).masses(row, top, scale).tobytes()
    terms = np.exp((row.astype(np.float64) - top) * np.float32(scale))
    exact = [terms[i : i + CHUNK].sum() for i in range(0, n, CHUNK)]
    # (x - top) * scale is rounded twice, and its error grows with it
    np.testing.assert_allclose(sums, exact, rtol=2e-6 * max(1.0, width / 20), atol=1e-30)


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=60, deadline=None)
@given(n=SIZES, seed=st.integers(0, 99))
def test_a_mask_bars_and_hides_nothing_that_is_not_finite(isa: Isa, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = rng.standard_normal(n).astype(np.float32)
    row[rng.integers(n)], row[rng.integers(n)], row[rng.integers(n)] = np.nan, np.inf, -np.inf
    bits = rng.integers(0, 2, n)
    mask = np.zeros(-(-n // 32), np.uint32)
    for i in np.flatnonzero(bits):
        mask[i // 32] |= np.uint32(1 << (i % 32))
    out, expected = guarded(np.zeros(n, np.float32)), np.zeros(n, np.float32)
    Largest(LIBRARIES[isa], n).masked(guarded(row), mask, out)
    NumpyLargest(n, 1).masked(row, mask, expected)
    assert np.array_equal(out, expected, equal_nan=True)
    for i in range(n):
        if bits[i]:
            assert np.array_equal(out[i], row[i], equal_nan=True)
        else:
            assert out[i] == -np.inf or np.isnan(row[i]) or (row[i] == np.inf and np.isnan(out[i]))


def masked_oracle(row: Row, bits: NDArray[np.int64]) -> int:
    if np.isnan(row).any() or (row == np.inf).any():
        return -1
    open_to = [i for i in range(len(row)) if bits[i] and row[i] > -np.inf]
    return max(open_to, key=lambda i: (float(row[i]), -i), default=-1)


def best_of(look: Largest) -> Chooser:
    none = np.empty(0, np.int64), np.empty(0, np.float32)
    made = look.chooser(k=1, whole=False, share=1 << 53, lowest=-np.inf, scale=1.0, seed=0, biases=none,
                        last=0, repeat=1.0, presence=0.0, frequency=0.0)  # fmt: skip
    assert made is not None
    return made


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=80, deadline=None)
@given(n=SIZES, share=st.sampled_from([0.02, 0.5, 0.97]), bad=st.sampled_from([0.0, 0.0, np.nan, np.inf, -np.inf]),
       seed=st.integers(0, 99))  # fmt: skip
def test_the_largest_of_those_that_a_mask_lets_through(isa: Isa, n: int, share: float, bad: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = rng.standard_normal(n).round(1).astype(np.float32)
    row[rng.integers(n)] = bad
    bits = (rng.random(n) < share).astype(np.int64)
    mask = np.packbits(np.pad(bits, (0, -n % 32)), bitorder="little").view(np.uint32)
    look, held = Largest(LIBRARIES[isa], n), guarded(row)
    expected = masked_oracle(row, bits)
    assert look.argmax(held, mask) == NumpyLargest(n, 1).argmax(row, mask) == expected
    one = best_of(look)
    assert one.choose(held, mask, 0) == expected
    # without it, all of them again
    assert look.argmax(held) == NumpyLargest(n, 1).argmax(row)
    assert one.choose(held, None, 0) == NumpyLargest(n, 1).argmax(row)


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=100, deadline=None)
@given(top_k=st.sampled_from([0, 1, 9, 40, 128]), top_p=st.sampled_from([0.2, 0.7, 0.95, 1]),
       min_p=st.sampled_from([0, 0.02, 0.3]), n=SIZES, width=st.sampled_from([0.02, 1.5]),
       share=st.sampled_from([None, 0.6]), seed=st.integers(0, 2**64 - 1))  # fmt: skip
def test_a_choice_is_that_of_the_samplers_in_numpy(
    isa: Isa, top_k: int, top_p: float, min_p: float, n: int, width: float, share: float | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    params = SamplingParams(
        top_k=top_k, top_p=top_p, min_p=min_p, seed=seed, logit_bias={n - 1: -2.0}, frequency_penalty=0.5,
        repeat_penalty=1.3,
    )  # fmt: skip
    native, numpy = (
        Sampler(params, n, None, largest, prompt=[0, n // 2], constraint=None if share is None else Share(n, share))
        for largest in (lambda n, k: Largest(LIBRARIES[isa], n, k), lambda _n, _k: None)
    )
    for _ in range(3):
        row = guarded((rng.standard_normal(n) * width).round(1).astype(np.float32))
        before = row.tobytes()
        assert native.sample(row) == numpy.sample(row)
        assert row.tobytes() == before


@pytest.mark.parametrize("isa", ISAS)
def test_penalties_are_undone_and_pass_over_ids_that_are_not_looked_at(isa: Isa) -> None:
    row, n = np.linspace(-2, 2, 40, dtype=np.float32), 30
    tokens, distinct, counts = (np.array(x) for x in ([3, 29, 3, 35, 3, 20], [20, 39, 3], [2, 1, 0]))
    for made in (Largest(LIBRARIES[isa], n).penalties(1.5, 0.25, 0.5), NumpyLargest(n, 1).penalties(1.5, 0.25, 0.5)):
        changed = row.copy()
        made.apply(changed, tokens, 1, 6, distinct, counts, 3)
        expected = row.copy()
        expected[3] *= np.float32(1.5)
        expected[[29, 20]] /= np.float32(1.5)
        expected[20] -= np.float32(1.25)
        assert changed.tolist() == expected.tolist()
        made.undo()
        assert changed.tolist() == row.tolist()


def test_a_mask_with_too_few_words_is_refused() -> None:
    with pytest.raises(ValueError, match="the mask has 1 words, fewer than 33 elements take"):
        Largest(LIBRARIES[ISAS[0]], 33).masked(
            np.zeros(33, np.float32), np.zeros(1, np.uint32), np.zeros(33, np.float32)
        )
