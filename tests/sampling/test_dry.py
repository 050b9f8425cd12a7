"""DRY and penalties against their definitions, over many histories."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sampling_oracle import Step, behind_breaker, distribution, repetitions

from minfer_models.sampling import Sampler, SamplingParams
from minfer_models.sampling.breakers import Breakers
from minfer_models.sampling.dry import Dry
from minfer_models.sampling.history import History

PIECES = (b"a", b"b", b"ab", b"\n", b"b: ", b" c", b"**")
BREAKERS = ((), ("\n",), (":",), ("ab",), ("bab", "*"), ("a\nb", " "), ("**a",))


def spell(token_id: int) -> bytes:
    return PIECES[token_id]


def history(prompt: list[int], generated: list[int]) -> History:
    made = History(prompt)
    for token_id in generated:
        made.append(token_id)
    return made


TOKENS = st.lists(st.integers(0, 6), max_size=60) | st.lists(st.integers(0, 1), max_size=60)
PERIODIC = st.builds(
    lambda part, n: (part * n)[:90], st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(1, 40)
)


@settings(max_examples=400, deadline=None)
@given(prompt=TOKENS | PERIODIC, generated=TOKENS, allowed=st.integers(1, 4), last_n=st.sampled_from([-1, 1, 5, 20]),
       breakers=st.sampled_from(BREAKERS))  # fmt: skip
@example([0] * 90, [], 2, -1, ())
@example([0, 1, 2, 3, 0, 1], [2], 1, -1, ("\n",))
def test_repetitions_are_those_of_the_naive_search(
    prompt: list[int], generated: list[int], allowed: int, last_n: int, breakers: tuple[str, ...]
) -> None:
    params = SamplingParams(
        dry_multiplier=1.0, dry_allowed_length=allowed, dry_penalty_last_n=last_n, dry_sequence_breakers=breakers
    )
    found = Breakers(breakers, spell)
    dry = Dry(params, found, len(PIECES)).repetitions(history(prompt, generated))
    expected = repetitions([*prompt, *generated], params, spell)
    assert {i: length for i, length in dry.items() if not found.inside(i)} == expected


@settings(max_examples=200, deadline=None)
@given(ids=TOKENS, breakers=st.sampled_from(BREAKERS), back=st.integers(0, 60), more=TOKENS)
def test_breakers_are_found_across_tokens_and_forgotten_with_them(
    ids: list[int], breakers: tuple[str, ...], back: int, more: list[int]
) -> None:
    found, made = Breakers(breakers, spell), history([], ids)
    assert found.tokens_behind(made) == behind_breaker(ids, breakers, spell)
    back = min(back, len(ids))
    made.rewind(back)
    found.rewind(made.length)
    for token_id in more:
        made.append(token_id)
    assert found.tokens_behind(made) == behind_breaker([*ids[: len(ids) - back], *more], breakers, spell)


@settings(max_examples=300, deadline=None)
@given(prompt=TOKENS, generated=TOKENS, last_n=st.sampled_from([-1, 0, 1, 4, 64]),
       repeat=st.sampled_from([1.0, 1.3, 0.7]), presence=st.sampled_from([0.0, 1.5, -0.5]),
       frequency=st.sampled_from([0.0, 0.3, -1.0]), dry=st.sampled_from([0.0, 0.9]))  # fmt: skip
def test_penalized_distributions_are_the_oracles(
    prompt: list[int], generated: list[int], last_n: int, repeat: float, presence: float, frequency: float, dry: float
) -> None:
    settings: dict[str, Any] = {
        "repeat_last_n": last_n,
        "repeat_penalty": repeat,
        "presence_penalty": presence,
        "frequency_penalty": frequency,
        "dry_multiplier": dry,
    }
    params = SamplingParams(temperature=1.0, top_k=7, top_p=1.0, min_p=0.0, seed=1, **settings)
    row = [1.5, -0.5, 0.25, 3.0, -2.0, 0.0, 1.0]
    expected = distribution(row, Step(params, 7, prompt, generated, spell=spell))
    sampler = Sampler(params, 7, prompt=prompt, bytes_of=spell)
    for token_id in generated:
        sampler.accept(token_id)
    ids, probabilities = sampler.distribution(np.array(row, np.float32))
    assert dict(zip(ids.tolist(), probabilities.tolist(), strict=True)) == pytest.approx(expected, rel=5e-6, abs=1e-30)


def test_the_penalty_is_the_formula() -> None:
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1, min_p=0, dry_multiplier=0.8, dry_base=1.5, seed=1)
    # 0 1 2 was followed by 4 once, 1 2 by 5 (behind 6); lengths 3 and 2, of which 2 are allowed
    sampler = Sampler(params, 7, prompt=[0, 1, 2, 4, 6, 1, 2, 5, 0, 1, 2], bytes_of=lambda _: b"")
    logs = np.log(sampler.distribution(np.zeros(7, np.float32))[1])
    assert logs[4] - logs[3] == pytest.approx(-0.8 * 1.5)
    assert logs[5] - logs[3] == pytest.approx(-0.8)
    assert logs[0] == logs[3] == logs[6]


def test_long_repetitions_stay_finite() -> None:
    params = SamplingParams(temperature=0, dry_multiplier=5.0, dry_base=3.0, dry_sequence_breakers=())
    sampler = Sampler(params, 3, prompt=[0, 1] * 3000, bytes_of=lambda _: b"")
    row = np.array([9.0, 1.0, 0.0], np.float32)
    assert sampler.sample(row) == 1
    assert math.isfinite(row.max())


def test_history_grows_and_goes_back() -> None:
    rng = np.random.default_rng(3)
    made, expected = History([5, 6]), [5, 6]
    for _ in range(300):
        if rng.random() < 0.3 and len(expected) > 2:
            n = int(rng.integers(1, len(expected) - 1))
            made.rewind(n)
            del expected[-n:]
        for token_id in rng.integers(0, 900, rng.integers(0, 9)).tolist():
            made.append(token_id)
            expected.append(token_id)
        assert made.recent(-1).tolist() == expected
        (n_distinct,) = made.n_distinct
        counts = dict(zip(made.distinct[:n_distinct].tolist(), made.counts[:n_distinct].tolist(), strict=True))
        assert counts == {i: expected[2:].count(i) for i in set(expected[2:])}
        assert n_distinct == len(counts)
    with pytest.raises(ValueError, match="can't be taken back"):
        made.rewind(made.n_generated + 1)
