"""Summaries and bootstrap intervals against values worked out by hand."""

from __future__ import annotations

import itertools
import statistics

import pytest

from minfer_models.bench.stats import Ratio, Summary, matched_ratio


def test_a_summary_by_hand() -> None:
    assert Summary.of([4.0, 1.0, 7.0, 2.0]) == Summary(4, 3.0, 3.5, statistics.stdev([4, 1, 7, 2]), 1.0, 7.0, 6.0)
    assert Summary.of([5.0]) == Summary(1, 5.0, 5.0, 0.0, 5.0, 5.0, 0.0)
    with pytest.raises(ValueError, match="no values"):
        Summary.of([])


def test_the_ratio_is_of_matched_rounds_not_of_medians() -> None:
    """A machine whose speed swings from round to round: every round says twice as fast."""
    ratio = matched_ratio([20.0, 10.0, 2.0, 8.0, 6.0], [10.0, 5.0, 1.0, 4.0, 3.0])
    assert ratio == Ratio(2.0, 2.0, 2.0, 0.95, 5)
    assert ratio.decided


def test_the_interval_is_the_exact_one() -> None:
    """All 3125 resamples of five rounds, each as likely: the quantiles of their medians."""
    ratios = [0.9, 1.1, 1.2, 1.3, 2.0]
    medians = sorted(statistics.median(drawn) for drawn in itertools.product(ratios, repeat=5))
    exact = medians[int(0.1 * len(medians))], medians[int(0.9 * len(medians))]
    found = matched_ratio(ratios, [1.0] * 5, level=0.8)
    assert (found.low, found.high) == exact == (1.1, 1.3)
    assert found.median == 1.2
    assert found.decided
    wide = matched_ratio(ratios, [1.0] * 5)
    assert (wide.low, wide.high) == (0.9, 2.0)
    assert not wide.decided


def test_the_same_seed_gives_the_same_interval() -> None:
    rates = [1.0, 1.5, 0.7, 1.2, 1.1, 0.9, 1.4]
    assert matched_ratio(rates, [1.0] * 7) == matched_ratio(rates, [1.0] * 7)
    few = {matched_ratio(rates, [1.0] * 7, seed=seed, resamples=5).low for seed in range(8)}
    assert len(few) > 1


def test_few_rounds_decide_nothing() -> None:
    assert matched_ratio([2.0], [1.0]) == Ratio(2.0, None, None, 0.95, 1)
    assert not matched_ratio([2.0], [1.0]).decided
    assert not matched_ratio([2.0] * 4, [1.0] * 4).decided
    assert matched_ratio([2.0] * 5, [1.0] * 5).decided


@pytest.mark.parametrize("sides", [([1.0], [1.0, 2.0]), ([], []), ([1.0], [0.0]), ([-1.0, 1.0], [1.0, 1.0])])
def test_what_is_no_matched_pair_is_refused(sides: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ValueError, match=r"matched rounds|above 0"):
        matched_ratio(*sides)
