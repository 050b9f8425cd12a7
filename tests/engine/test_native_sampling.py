"""A sampler that looks at logits natively chooses as the one in numpy, and refuses as it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from minfer_kernels.cpu.compiler.library import KernelLibrary
from minfer_kernels.cpu.runner.largest import MOST, Largest
from minfer_models.sampling import Sampler, SamplingError, SamplingParams
from minfer_models.sampling.uniforms import Uniforms

LIBRARY = KernelLibrary(None, Path(__file__).resolve().parents[2] / ".cache" / "test-kernels")
N_VOCAB = 151_936
PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0, 0.3, 0.8, 2.5]),
    top_k=st.sampled_from([0, 0, 1, 2, 7, 40, 2000]),
    top_p=st.sampled_from([0, 0.3171, 0.9, 0.95, 1]),
    min_p=st.sampled_from([0, 0, 0.05, 0.7]),
    top_n_sigma=st.sampled_from([0, 0, 0, 1.1]),
    typical_p=st.sampled_from([1, 1, 1, 0.71]),
    xtc_probability=st.sampled_from([0, 0, 0.5]),
    dynatemp_range=st.sampled_from([0, 0, 0.5]),
    mirostat=st.sampled_from([0, 0, 0, 1, 2]),
    repeat_penalty=st.sampled_from([1, 1.2]),
    presence_penalty=st.sampled_from([0, 1]),
    seed=st.integers(0, 2**64 - 1),
)


def native(n: int, k: int) -> Largest | None:
    return Largest(LIBRARY, n, k) if k <= MOST else None


class Some:
    """A constraint that lets a share of the tokens through."""

    def __init__(self, n: int, share: float) -> None:
        bits = np.random.default_rng(n).random(32 * -(-n // 32)) < share
        bits[0] = True
        self._mask = np.packbits(bits, bitorder="little").view(np.uint32)
        self.finished = False

    def mask(self) -> NDArray[np.uint32]:
        return self._mask

    def accept(self, token_id: int) -> None:
        assert self._mask[token_id // 32] >> (token_id % 32) & 1


def pair(params: SamplingParams, n: int, decodable: int, share: float | None = None) -> tuple[Sampler, Sampler]:
    constraint = None if share is None else Some(n, share)
    return (
        Sampler(params, n, decodable, native, prompt=[0, 1], constraint=constraint),
        Sampler(params, n, decodable, prompt=[0, 1], constraint=constraint),
    )


def check(native: Sampler, numpy: Sampler, row: NDArray[np.float32]) -> None:
    """The same bits, not only nearly the same numbers; and the row is left as it was."""
    before = row.tobytes()
    ids, probabilities = native.distribution(row)
    expected = numpy.distribution(row)
    assert ids.tolist() == expected[0].tolist()
    assert probabilities.tolist() == expected[1].tolist()
    assert native.sample(row) == numpy.sample(row)
    assert row.tobytes() == before
    row.flags.writeable = False
    assert native.sample(row) == numpy.sample(row)


@settings(max_examples=250, deadline=None)
@given(params=PARAMS, n=st.integers(1, 3000), width=st.sampled_from([0.01, 1.0, 8.0]), data=st.data())
def test_the_same_choices(params: SamplingParams, n: int, width: float, data: st.DataObject) -> None:
    decodable = data.draw(st.integers(1, n))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    rows = (rng.standard_normal((3, n)) * width).round(2).astype(np.float32)
    rows[:, decodable:] = math.nan
    rows[2, rng.integers(1, decodable) if decodable > 1 else 0 :] = -math.inf
    both = pair(params, n, decodable, data.draw(st.sampled_from([None, 0.02, 0.9])))
    for row in rows:
        if row[0] > -math.inf:
            check(*both, row)


USUAL = st.builds(
    SamplingParams,
    temperature=st.sampled_from([1e-40, 0.05, 0.8, 30, 1e40]),
    top_k=st.integers(0, 129),
    top_p=st.one_of(st.just(1.0), st.floats(0, 1)),
    min_p=st.one_of(st.just(0.0), st.floats(0, 1)),
    seed=st.integers(0, 2**64 - 1),
)


@settings(max_examples=400, deadline=None)
@given(params=USUAL, n=st.integers(1, 500), width=st.sampled_from([0.0, 0.3, 3.0, 1e30]), seed=st.integers(0, 99),
       share=st.sampled_from([None, 0.1, 0.9]))  # fmt: skip
def test_the_usual_choice_is_that_of_the_samplers_one_by_one(
    params: SamplingParams, n: int, width: float, seed: int, share: float | None
) -> None:
    rng = np.random.default_rng(seed)
    both = pair(params, n, n, share)
    for _ in range(4):
        row = (rng.standard_normal(n) * width).round(1).astype(np.float32)
        assert both[0].sample(row) == both[1].sample(row)


EDITED = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0, 0.8]),
    top_k=st.sampled_from([0, 1, 40]),
    repeat_penalty=st.sampled_from([1, 0.7, 1.3]),
    repeat_last_n=st.sampled_from([-1, 0, 3, 64, 10**30]),
    presence_penalty=st.sampled_from([0, 0.75, -2]),
    frequency_penalty=st.sampled_from([0, 0.3, -1.1]),
    logit_bias=st.dictionaries(st.integers(0, 29), st.sampled_from([-math.inf, -3.0, 0.1, 4.0]), max_size=3),
    dry_multiplier=st.sampled_from([0, 0, 0.8]),
    dry_sequence_breakers=st.just(()),
    seed=st.integers(0, 2**64 - 1),
)
MOVES = st.lists(
    st.one_of(
        st.just(("sample", 0)),
        st.tuples(st.just("accept"), st.integers(0, 34)),
        st.tuples(st.just("rewind"), st.integers(1, 5)),
    ),
    max_size=25,
)


@settings(max_examples=250, deadline=None)
@given(params=EDITED, moves=MOVES, told=st.sampled_from([0, 3, 255, 700]), share=st.sampled_from([None, None, 0.7]),
       seed=st.integers(0, 99))  # fmt: skip
def test_the_same_text_with_biases_and_penalties_whatever_is_told_and_taken_back(
    params: SamplingParams, moves: list[tuple[str, int]], told: int, share: float | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    if share is not None:  # it refuses what it is told, and takes nothing back
        moves, told = [move for move in moves if move[0] == "sample"], 0
    both = pair(params, 35, 30, share)
    row = (rng.standard_normal(35) * 2).round(1).astype(np.float32)
    row[30:] = math.nan
    for token_id in rng.integers(0, 35, told).tolist():
        for sampler in both:
            sampler.accept(token_id)
    before = row.tobytes()
    for move, by in [*moves, ("sample", 0)]:
        if move == "sample":
            assert both[0].sample(row) == both[1].sample(row)
            assert row.tobytes() == before
        for sampler in both:
            if move == "accept":
                sampler.accept(by)
            elif move == "rewind":
                sampler.rewind(min(by, sampler.step))
    assert both[0].tokens == both[1].tokens


def test_a_step_s_number_is_that_of_numpy_s_generator() -> None:
    """Ten equally likely tokens: which one it is tells the number's first digit."""
    row, step_of = np.zeros(11, np.float32), Uniforms(2**64 - 3).draw
    row[10] = -math.inf
    sampler, _ = pair(SamplingParams(top_k=10, top_p=1, min_p=0, temperature=1, seed=2**64 - 3), 11, 11)
    for step in range(300):
        assert sampler.sample(row) == int(10 * step_of(step))


def test_a_nucleus_ends_before_min_p_does() -> None:
    """0.96 of the probability is in two tokens, and the third has more than min-p of the first one's."""
    row = np.full(300, -30, np.float32)
    row[:3] = np.log([0.5, 0.46, 0.04])
    both = pair(SamplingParams(top_k=0, top_p=0.95, min_p=0.05, temperature=1, seed=1), 300, 300)
    for _ in range(300):
        chosen = both[0].sample(row)
        assert chosen == both[1].sample(row)
        assert chosen < 2


@pytest.mark.parametrize("width", [0.05, 2.5])
@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"top_k": 0},
        {"top_k": 0, "min_p": 0},
        {"top_k": 0, "min_p": 0, "top_p": 0.9999},
        {"top_k": 0, "top_p": 1},
        {"top_k": 0, "top_p": 1, "min_p": 0},
        {"top_k": 5000},
        {"mirostat": 2},
        {"presence_penalty": 1, "repeat_penalty": 1.1, "top_n_sigma": 1},
    ],
)
def test_the_same_choices_of_a_large_vocabulary(setting: dict[str, Any], width: float) -> None:
    rng = np.random.default_rng(2)
    both = pair(SamplingParams(**{"seed": 3, **setting}), N_VOCAB, 151_669)
    for _ in range(2):
        row = (rng.standard_normal(N_VOCAB) * width).astype(np.float32)
        row[151_669:] = math.nan
        check(*both, row)


@pytest.mark.parametrize("setting", [{"temperature": 0}, {}, {"top_k": 0}, {"top_k": 0, "top_p": 1, "min_p": 0}])
@pytest.mark.parametrize("bad", [math.nan, math.inf, None])
def test_the_same_refusals(setting: dict[str, Any], bad: float | None) -> None:
    good = np.zeros(100, np.float32)
    row = np.full(100, -math.inf if bad is None else 0.5, np.float32)
    if bad is not None:
        row[70] = bad
    messages: list[str] = []
    for sampler in pair(SamplingParams(**setting, seed=1), 100, 100):
        for _ in range(3):
            sampler.sample(good)
        with pytest.raises(SamplingError) as error:
            sampler.sample(row)
        messages.append(str(error.value))
        assert sampler.step == 3
        with pytest.raises(SamplingError, match=r"shape \(99,\), not \(100,\)"):
            sampler.sample(row[:99])
    assert messages[0] == messages[1]
    assert "at step 3" in messages[0]


def test_probabilities_that_came_back_stay() -> None:
    sampler, _ = pair(SamplingParams(top_p=1, min_p=0, top_k=3, seed=1), 50, 50)
    row = np.arange(50, dtype=np.float32)
    ids, _ = sampler.distribution(row)
    sampler.sample(row[::-1].copy())
    assert ids.tolist() == [47, 48, 49]
