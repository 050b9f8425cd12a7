"""What a sampler carries from step to step: its history, mirostat's mu, and the way back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_oracle import Step, distribution, zipf_k

from minfer_models.sampling import Sampler, SamplingError, SamplingParams

N = 30
STATEFUL: list[dict[str, Any]] = [
    {},
    {"temperature": 0, "frequency_penalty": 1.5},
    {"repeat_penalty": 1.4, "repeat_last_n": 5},
    {"presence_penalty": 1.0, "frequency_penalty": -0.3},
    {"dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_sequence_breakers": ("7",)},
    {"xtc_probability": 0.5, "min_p": 0},
    {"mirostat": 1, "mirostat_tau": 2.0},
    {"mirostat": 2, "mirostat_tau": 1.5, "mirostat_eta": 0.9},
    {"top_k": 0, "top_p": 1, "min_p": 0},
]


def spell(token_id: int) -> bytes:
    return b"%d " % token_id


def rows(seed: int, n: int) -> list[np.ndarray]:
    return list((np.random.default_rng(seed).standard_normal((n, N)) * 1.5).astype(np.float32))


def made(setting: dict[str, Any], seed: int = 7, prompt: tuple[int, ...] = (3, 4, 3, 4)) -> Sampler:
    return Sampler(SamplingParams(**{"seed": seed, **setting}), N, prompt=prompt, bytes_of=spell)


@pytest.mark.parametrize("setting", STATEFUL)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(1, 20), back=st.integers(0, 20), other=st.booleans())
def test_taking_back_repeats_the_choices(setting: dict[str, Any], seed: int, n: int, back: int, other: bool) -> None:
    back, given = min(back, n), rows(seed, n)
    sampler = made(setting, seed)
    chosen = [sampler.sample(row) for row in given]
    sampler.rewind(back)
    assert (sampler.step, sampler.tokens) == (n - back, chosen[: n - back])
    if other and back:  # a detour leaves no trace
        sampler.sample(given[-1][::-1].copy())
        sampler.accept(5)
        sampler.rewind(2)
    assert [sampler.sample(row) for row in given[n - back :]] == chosen[n - back :]


@pytest.mark.parametrize("setting", STATEFUL)
def test_only_seed_step_row_and_own_tokens_decide(setting: dict[str, Any]) -> None:
    given = rows(3, 12)
    alone, among = made(setting), made(setting)
    others = [made({"temperature": 1.0}, seed, (seed,)) for seed in range(7)]
    chosen = [alone.sample(row) for row in given]
    beside: list[int] = []
    for i, row in enumerate(given):
        for other in others[: i % 8]:
            other.sample(given[-1 - i])
        beside.append(among.sample(row))
        among.distribution(given[0])  # looking changes nothing
    assert beside == chosen
    if not setting.get("mirostat"):  # tokens that came another way are history as well
        told = made(setting)
        for token_id in chosen[:-1]:
            told.accept(token_id)
        assert told.sample(given[-1]) == chosen[-1]


def test_taking_back_more_than_was_chosen_is_refused() -> None:
    sampler = made({})
    sampler.sample(rows(0, 1)[0])
    for n in (2, -1):
        with pytest.raises(SamplingError, match=f"{n} tokens can't be taken back: 1 were chosen"):
            sampler.rewind(n)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_mirostat_learns_from_the_surprise_under_the_whole_distribution(version: int, temperature: float) -> None:
    setting = {"mirostat": version, "mirostat_tau": 1.8, "mirostat_eta": 0.4, "temperature": temperature}
    sampler, mu = made(setting), 2 * 1.8
    for row in rows(11, 40):
        step = Step(sampler.params, N, mu=mu)
        expected = distribution(row.tolist(), step)
        ids, probabilities = sampler.distribution(row)
        assert ids.tolist() == sorted(expected)
        np.testing.assert_allclose(probabilities, [expected[i] for i in ids.tolist()], rtol=1e-5)
        chosen = sampler.sample(row)
        scaled = row.astype(np.float64) / temperature
        chances = np.exp(scaled - scaled.max())
        mu -= 0.4 * (-math.log2(chances[chosen] / chances.sum()) - 1.8)


def test_mirostat_estimates_from_a_hundred_tokens_whatever_top_k_is() -> None:
    rng = np.random.default_rng(4)
    for top_k in (0, 5, 40):
        row = np.sort(rng.standard_normal(600).astype(np.float32) * 2) * rng.uniform(0.5, 1.5)
        row = row.astype(np.float32)
        sampler = Sampler(SamplingParams(temperature=1, mirostat=1, mirostat_tau=5.0, top_k=top_k, seed=1), 600)
        expected = distribution(row.tolist(), Step(sampler.params, 600, mu=10.0))
        assert sampler.distribution(row)[0].tolist() == sorted(expected)


def zipf_rows(n: int, steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [(-s * np.log(rng.permutation(n) + 1)).astype(np.float32) for s in rng.uniform(0.9, 1.4, steps)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [3.0, 5.0])
def test_mirostat_holds_the_mean_surprise_at_its_target(version: int, tau: float) -> None:
    n, steps = 5000, 400
    params = SamplingParams(temperature=1, mirostat=version, mirostat_tau=tau, mirostat_eta=0.3, seed=5)
    sampler, surprises = Sampler(params, n), list[float]()
    for row in zipf_rows(n, steps):
        chosen = sampler.sample(row)
        wide = row.astype(np.float64)
        surprises.append(float(np.log2(np.exp(wide).sum()) - wide[chosen] / math.log(2)))
    assert abs(np.mean(surprises[50:]) - tau) < 0.15


def test_mirostats_k_is_the_papers_on_a_law_of_zipf() -> None:
    n, s = 2000, 1.3
    row = (-s * np.log(np.arange(1, n + 1))).astype(np.float32)
    sampler = Sampler(SamplingParams(temperature=1, mirostat=1, mirostat_tau=2.0, seed=1), n)
    k = ((s - 1) * 2**4.0 / (1 - n ** -(s - 1))) ** (1 / s)
    assert len(sampler.distribution(row)[0]) == round(k)
    assert zipf_k(row[:101].tolist(), Step(sampler.params, n, mu=4.0)) == round(k)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("row", [[0.0] * N, [5.0] + [-math.inf] * (N - 1), [200.0, *[-200.0] * (N - 1)]])
def test_mirostat_at_the_ends(version: int, row: list[float]) -> None:
    sampler = made({"mirostat": version, "mirostat_eta": 2.0})
    logits = np.array(row, np.float32)
    for _ in range(40):
        assert row[sampler.sample(logits)] == max(row)


def test_xtc_acts_in_the_share_of_steps_that_it_says() -> None:
    row = np.array([4.0, 3.9, 3.8, -9.0], np.float32)
    setting = {"xtc_probability": 0.3, "xtc_threshold": 0.1, "min_p": 0, "top_p": 1, "temperature": 1}
    sampler = Sampler(SamplingParams(**setting, seed=4), 4)
    acted: list[bool] = []
    for _ in range(1000):
        ids = sampler.distribution(row)[0].tolist()
        assert ids in ([0, 1, 2, 3], [2, 3])
        acted.append(len(ids) == 2)
        sampler.sample(row)
    assert 250 < sum(acted) < 350  # 3.4 standard deviations


class Only:
    """A constraint that lets some tokens through and remembers what it was told."""

    def __init__(self, *ids: int, words: int = 1) -> None:
        self.bits = np.zeros(words, np.uint32)
        for i in ids:
            self.bits[i // 32] |= np.uint32(1 << (i % 32))
        self.taken: list[int] = []
        self.finished = False

    def mask(self) -> np.ndarray | None:
        return self.bits if len(self.bits) else None

    def accept(self, token_id: int) -> None:
        self.taken.append(token_id)


class Rewindable(Only):
    def rewind(self, n: int) -> None:
        del self.taken[len(self.taken) - n :]


@pytest.mark.parametrize("setting", STATEFUL)
def test_a_constraint_is_asked_first_and_told_what_was_chosen(setting: dict[str, Any]) -> None:
    constraint = Only(2, 9, 29)
    sampler = Sampler(SamplingParams(**{"seed": 1, **setting}), N, prompt=[2, 9], constraint=constraint, bytes_of=spell)
    assert sampler.stages[0] == "constraint"
    chosen: list[int] = []
    for row in rows(4, 20):
        step = Step(sampler.params, N, [2, 9], chosen, {2, 9, 29})
        if not setting.get("mirostat"):
            expected = distribution(row.tolist(), step)
            ids, probabilities = sampler.distribution(row)
            assert dict(zip(ids.tolist(), probabilities.tolist(), strict=True)) == pytest.approx(expected, rel=1e-6)
        chosen.append(sampler.sample(row))
    assert set(chosen) <= {2, 9, 29}
    assert constraint.taken == chosen


def test_without_a_mask_every_token_may_come() -> None:
    sampler = Sampler(SamplingParams(temperature=0), N, constraint=Only(words=0))
    assert sampler.sample(np.arange(N, dtype=np.float32)) == N - 1


@pytest.mark.parametrize(
    ("make", "row", "message"),
    [
        (Only, [0.0] * N, "step 0: the constraint allows none that has a logit"),
        (lambda: Only(3), [*[0.0] * 3, -math.inf, *[0.0] * 26], "step 0: the constraint allows none that has a logit"),
        (lambda: Only(3), [math.nan, *[0.0] * 29], "step 0: the logit of id 0 is nan"),
        (lambda: Only(3), [*[0.0] * 29, math.inf], "step 0: the logit of id 29 is inf"),
        (lambda: Only(words=1), [0.0] * 40, "the mask has 1 words, fewer than 40 tokens take"),
    ],
)
@pytest.mark.parametrize("temperature", [0, 1])
def test_what_leaves_no_token_is_said(
    make: Callable[[], Only], row: list[float], message: str, temperature: float
) -> None:
    constraint = make()
    sampler = Sampler(SamplingParams(temperature=temperature), len(row), constraint=constraint)
    with pytest.raises(SamplingError, match=message):
        sampler.sample(np.array(row, np.float32))
    assert (sampler.step, constraint.taken) == (0, [])


@pytest.mark.parametrize(
    ("mask", "kind"),
    [
        (np.ones(40, bool), r"bool \[40\]"),
        (np.full(40, 255, np.uint8), r"uint8 \[40\]"),
        (np.full(2, 2**32 - 1, np.int64), r"int64 \[2\]"),
        (np.full((2, 2), 2**32 - 1, np.uint32), r"uint32 \[2, 2\]"),
        ([2**32 - 1] * 2, "list"),
    ],
)
def test_a_mask_of_another_kind_is_refused(mask: Any, kind: str) -> None:
    """A list of booleans, say, would be read as words of which the lowest bit counts."""
    constraint = Only(3)
    constraint.mask = lambda: mask  # type: ignore[method-assign]
    sampler = Sampler(SamplingParams(temperature=0), 40, constraint=constraint)
    with pytest.raises(SamplingError, match=f"the constraint's mask is {kind}, not uint32 words"):
        sampler.sample(np.zeros(40, np.float32))


def test_a_constraint_is_rewound_with_the_sampler_or_the_sampler_is_not() -> None:
    row = np.zeros(N, np.float32)
    sampler = Sampler(SamplingParams(seed=1), N, constraint=(constraint := Rewindable(1, 2)))
    chosen = [sampler.sample(row) for _ in range(4)]
    sampler.rewind(3)
    assert constraint.taken == sampler.tokens == chosen[:1]
    fixed = Sampler(SamplingParams(seed=1), N, constraint=Only(1, 2))
    fixed.sample(row)
    with pytest.raises(SamplingError, match="1 tokens can't be taken back: the constraint can't be rewound"):
        fixed.rewind(1)
    assert fixed.step == 1


@pytest.mark.parametrize("bad", [math.nan, None])
def test_a_row_is_left_as_it_was(bad: float | None) -> None:
    setting = {"logit_bias": {1: -math.inf, 2: 3.0}, "repeat_penalty": 1.3, "presence_penalty": 1.0}
    sampler = made({**setting, "dry_multiplier": 2.0, "dry_allowed_length": 1})
    row = rows(1, 1)[0]
    row[3] = row[3] if bad is None else bad
    before = row.tobytes()
    for _ in range(4):
        if bad is None:
            sampler.sample(row)
            sampler.distribution(row)
        else:
            with pytest.raises(SamplingError, match="step 0: the logit of id 3 is nan"):
                sampler.sample(row)
    assert row.tobytes() == before


def test_a_row_is_left_as_it_was_when_an_edit_fails() -> None:
    def fails(_token_id: int) -> bytes:
        raise KeyError("no such token")

    params = SamplingParams(logit_bias={1: 2.0}, repeat_penalty=2.0, dry_multiplier=1.0)
    sampler, row = Sampler(params, N, prompt=[1, 2, 1], bytes_of=fails), rows(1, 1)[0]
    before = row.tobytes()
    with pytest.raises(KeyError):
        sampler.sample(row)
    assert (row.tobytes(), sampler.step) == (before, 0)
