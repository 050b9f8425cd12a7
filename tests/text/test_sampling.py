"""Sampling against a naive implementation, exact probabilities and the stated guarantees."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minfer_models.sampling import Sampler, SamplingError, SamplingParams

Row = npt.NDArray[np.float32]
OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def row(*values: float) -> Row:
    return np.array(values, dtype=np.float32)


def naive(logits: Row, decodable: int, params: SamplingParams) -> dict[int, float]:
    """Id to probability, by sorting everything and following the definitions one token at a time."""
    ranked = sorted(range(decodable), key=lambda i: (-float(logits[i]), i))
    top = float(logits[ranked[0]])
    if params.temperature == 0:
        return {ranked[0]: 1.0}
    if params.top_k:
        ranked = ranked[: params.top_k]
    if params.top_p < 1:
        weights = [math.exp(float(logits[i]) - top) for i in ranked]
        total, reached, keep = math.fsum(weights), 0.0, 0
        while keep == 0 or (reached < params.top_p * total and keep < len(ranked)):
            reached += weights[keep]
            keep += 1
        ranked = ranked[:keep]
    if params.min_p > 0:
        ranked = [i for i in ranked if float(logits[i]) >= top + math.log(params.min_p)]
    weights = [math.exp((float(logits[i]) - top) / params.temperature) for i in ranked]
    return {i: weight / math.fsum(weights) for i, weight in zip(ranked, weights, strict=True)}


# Logits in quarters: many ties, and no sum of probabilities lands on a limit by rounding alone.
LOGITS = st.lists(st.one_of(st.integers(-40, 40).map(lambda n: n / 4), st.just(-math.inf)), min_size=1, max_size=60)
PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0, 1e-6, 0.3, 1, 2.5, 1e9]),
    top_k=st.sampled_from([0, 1, 2, 3, 7, 40, 10**9]),
    top_p=st.sampled_from([0, 0.05, 0.3171, 0.62, 0.9, 0.9993, 1]),
    min_p=st.sampled_from([0, 0.011, 0.2, 0.7, 1]),
    seed=st.integers(0, 2**64 - 1),
)


@settings(max_examples=400, deadline=None)
@given(values=LOGITS, params=PARAMS, padding=st.integers(0, 3))
@example(values=[0.0] * 7, params=SamplingParams(1, 3, 1, 0, 1), padding=1)
@example(values=[0.0, -100.0, 0.25], params=SamplingParams(1, 0, 0.9999, 0, 1), padding=0)
def test_the_distribution_is_the_naive_one(values: list[float], params: SamplingParams, padding: int) -> None:
    logits = row(*values, *[math.nan] * padding)
    sampler = Sampler(params, len(logits), len(values))
    if max(values) == -math.inf:
        with pytest.raises(SamplingError, match="every logit is -inf"):
            sampler.distribution(logits)
        return
    ids, probabilities = sampler.distribution(logits)
    expected = naive(logits, len(values), params)
    assert ids.tolist() == sorted(expected)
    np.testing.assert_allclose(probabilities, [expected[i] for i in sorted(expected)], rtol=1e-9, atol=1e-15)
    assert expected[sampler.sample(logits)] > 0


@pytest.mark.parametrize("width", [1000, 49152])
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.95, 0.999])
def test_top_p_of_wide_rows_is_the_naive_one(width: int, spread: float, top_p: float) -> None:
    logits = (np.random.default_rng(3).standard_normal(width) * spread).astype(np.float32)
    params = SamplingParams(**{**OFF, "top_p": top_p, "seed": 1})
    ids, _ = Sampler(params, width).distribution(logits)
    order = np.argsort(-logits, kind="stable")
    weights = np.exp(logits[order].astype(np.longdouble) - logits[order[0]])
    keep = int(np.searchsorted(np.cumsum(weights), top_p * weights.sum())) + 1
    assert abs(len(ids) - keep) <= 1  # a sum this long may round either way at the limit
    assert ids.tolist() == sorted(order[: len(ids)].tolist())


def chi_square(counts: npt.NDArray[np.int64], probabilities: npt.NDArray[np.float64]) -> float:
    expected = probabilities * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(
    "setting", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.2}, {"temperature": 2, "top_k": 5}]
)
def test_draws_follow_the_distribution(setting: dict[str, float]) -> None:
    logits = row(0.0, 1.0, -1.0, 2.0, 0.5, 1.5, -2.0, -math.inf)
    params = SamplingParams(**{**OFF, **setting, "seed": 20240726})
    expected = naive(logits, 8, params)
    sampler = Sampler(params, 8)
    counts = np.bincount([sampler.sample(logits) for _ in range(4000)], minlength=8)
    possible = sorted(i for i, p in expected.items() if p > 0)
    assert counts.sum() == counts[possible].sum()
    # The 0.9999 quantile for 7 or fewer degrees of freedom is below 30.
    assert chi_square(counts[possible], np.array([expected[i] for i in possible])) < 30


def test_greedy_takes_the_lowest_id_on_ties() -> None:
    sampler = Sampler(SamplingParams(temperature=0), 5)
    assert sampler.sample(row(1, 3, 3, -1, 3)) == 1
    assert sampler.sample(row(-math.inf, -5, -5, -math.inf, -5)) == 1
    assert sampler.sample(row(0, 0, 0, 0, 0)) == 0


@pytest.mark.parametrize("params", [SamplingParams(temperature=0), SamplingParams(**OFF, seed=5)])
def test_ids_that_stand_for_no_text_are_never_chosen(params: SamplingParams) -> None:
    sampler = Sampler(params, n_vocab=151936, decodable=151669)
    logits = np.zeros(151936, dtype=np.float32)
    logits[151669:] = 1e30
    logits[151935] = math.nan
    logits[7] = 1.0
    assert all(sampler.sample(logits) < 151669 for _ in range(20))
    assert sampler.distribution(logits)[0].max() < 151669


@pytest.mark.parametrize("top_k", [1, 10**9])
@pytest.mark.parametrize("top_p", [0.0, 1.0])
def test_extreme_settings(top_k: int, top_p: float) -> None:
    logits = row(1, 4, 2, 4)
    ids, _ = Sampler(SamplingParams(temperature=1e9, top_k=top_k, top_p=top_p, min_p=0, seed=1), 4).distribution(logits)
    assert ids.tolist() == ([0, 1, 2, 3] if (top_k, top_p) == (10**9, 1.0) else [1])


def test_min_p_one_keeps_what_ties_with_the_best() -> None:
    ids, probabilities = Sampler(SamplingParams(**{**OFF, "min_p": 1.0}), 4).distribution(row(1, 4, 2, 4))
    assert (ids.tolist(), probabilities.tolist()) == ([1, 3], [0.5, 0.5])


def test_filters_come_before_temperature() -> None:
    logits = row(2.0, 1.0, 0.0)
    hot = Sampler(SamplingParams(temperature=100, top_k=0, top_p=0.6, min_p=0), 3).distribution(logits)[0]
    assert hot.tolist() == [0]  # after the division by 100 every token would be about a third


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), steps=st.integers(1, 6), back=st.integers(0, 5))
def test_seed_and_step_alone_decide(seed: int, steps: int, back: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((6, 50)).astype(np.float32)
    params = SamplingParams(**{**OFF, "seed": seed})
    first, second = Sampler(params, 50), Sampler(params, 50)
    chosen = [first.sample(r) for r in rows]
    for r in rows[:steps]:
        second.sample(r + 1)  # other rows before do not matter
    second.step = back
    assert second.sample(rows[back]) == chosen[back]
    assert first.step == 6


def test_seeds_differ() -> None:
    logits = np.zeros(1000, dtype=np.float32)
    seeds = [0, 1, 2, 42, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    samplers = [Sampler(SamplingParams(**{**OFF, "seed": seed}), 1000) for seed in seeds]
    texts = {tuple(sampler.sample(logits) for _ in range(6)) for sampler in samplers}
    assert len(texts) == len(seeds)
    assert [sampler.seed for sampler in samplers] == seeds


@pytest.mark.parametrize("seed", [None, -1])
def test_a_drawn_seed_is_reported_and_repeats(seed: int | None) -> None:
    logits = np.zeros(1000, dtype=np.float32)
    drawn = [Sampler(SamplingParams(**{**OFF, "seed": seed}), 1000) for _ in range(3)]
    assert len({sampler.seed for sampler in drawn}) > 1
    assert all(0 <= sampler.seed < 2**32 for sampler in drawn)
    again = Sampler(SamplingParams(**{**OFF, "seed": drawn[0].seed}), 1000)
    assert [drawn[0].sample(logits) for _ in range(5)] == [again.sample(logits) for _ in range(5)]


def test_settings_that_keep_the_same_tokens_choose_the_same_one() -> None:
    logits = np.random.default_rng(1).standard_normal(100).astype(np.float32)
    variants: list[dict[str, Any]] = [{}, {"top_k": 100}, {"top_k": 10**6}, {"min_p": 1e-30}]
    texts = []
    for variant in variants:
        sampler = Sampler(SamplingParams(**{**OFF, **variant, "seed": 9}), 100)
        texts.append([sampler.sample(logits) for _ in range(20)])
    assert texts == [texts[0]] * len(variants)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("temperature", -1, "at least 0"),
        ("temperature", math.nan, "at least 0"),
        ("temperature", math.inf, "at least 0"),
        ("temperature", "0", "a number at least 0"),
        ("temperature", None, "a number at least 0"),
        ("temperature", True, "a number at least 0"),
        ("top_k", -1, "at least 0"),
        ("top_k", 2.0, "an integer at least 0"),
        ("top_k", False, "an integer at least 0"),
        ("top_p", 1.5, "between 0 and 1"),
        ("top_p", -0.1, "between 0 and 1"),
        ("top_p", math.nan, "between 0 and 1"),
        ("min_p", 1.0001, "between 0 and 1"),
        ("min_p", -1, "between 0 and 1"),
        ("seed", -2, "between 0 and"),
        ("seed", 2**64, "between 0 and"),
        ("seed", 1.5, "an integer between 0 and"),
        ("seed", "42", "an integer between 0 and"),
    ],
)
def test_settings_out_of_range_are_named(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(SamplingError, match=rf"^{name} is {value!r}; it must be {allowed}"):
        SamplingParams(**{name: value})


def test_numpy_numbers_are_settings() -> None:
    values: dict[str, Any] = {"temperature": np.float32(0.5), "top_k": np.int64(3), "seed": np.uint64(2**64 - 1)}
    sampler = Sampler(SamplingParams(**values), 10)
    assert sampler.sample(np.arange(10, dtype=np.float32)) >= 7
    assert (type(sampler.seed), sampler.seed) == (int, 2**64 - 1)


@pytest.mark.parametrize(("uniform", "chosen"), [(0.0, 1), (0.4999, 1), (0.5001, 3), (1 - 2**-53, 3)])
def test_an_impossible_token_is_not_chosen_at_the_ends_of_the_draw(
    monkeypatch: pytest.MonkeyPatch, uniform: float, chosen: int
) -> None:
    sampler = Sampler(SamplingParams(**OFF), 5)
    monkeypatch.setattr(sampler, "_uniform", lambda step: uniform)
    assert sampler.sample(row(-math.inf, 2, -math.inf, 2, -math.inf)) == chosen


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (row(1, math.nan, 5), "step 0: the logit of id 1 is nan"),
        (row(1, math.inf, 5), "step 0: the logit of id 1 is inf"),
        (row(*[-math.inf] * 3), "every logit is -inf"),
        (row(1, 2), r"shape \(2,\), not \(3,\)"),
        (row(1, 2, 3).reshape(1, 3), r"shape \(1, 3\), not \(3,\)"),
    ],
)
def test_logits_nothing_can_be_chosen_from_are_refused(logits: Row, message: str, temperature: float) -> None:
    sampler = Sampler(SamplingParams(temperature=temperature), 3)
    with pytest.raises(SamplingError, match=message):
        sampler.sample(logits)
    assert sampler.step == 0
    assert sampler.sample(row(1, 2, -math.inf)) in (0, 1)


@pytest.mark.parametrize(("n_vocab", "decodable"), [(5, 0), (0, None), (5, -1)])
def test_a_vocabulary_without_text_is_refused(n_vocab: int, decodable: int | None) -> None:
    with pytest.raises(SamplingError, match=f"of {n_vocab} ids are decodable"):
        Sampler(SamplingParams(), n_vocab, decodable)


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
@pytest.mark.parametrize("step", [0, 5, 63, 64, 2**40])
def test_a_steps_number_is_the_first_of_its_own_generator(seed: int, step: int) -> None:
    sampler = Sampler(SamplingParams(seed=seed), 2)
    steps = [*range(step, step + 70), step, step + 1000, step + 999]
    expected = [np.random.Generator(np.random.Philox(key=seed, counter=s)).random() for s in steps]
    assert [sampler._uniform(s) for s in steps] == expected
