"""The whole pipeline against the oracle, over settings, histories, constraints and rows."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sampling_oracle import Step, distribution

from minfer_models.sampling import PIPELINE, Sampler, SamplingError, SamplingParams

RNG = np.random.default_rng(5)
# No sum of probabilities lands on a limit by rounding alone, and there are ties.
VALUES = [float(np.float32(x)) for x in RNG.standard_normal(24) * 2.3]
LOGITS = st.lists(st.sampled_from([*VALUES, -math.inf]), min_size=1, max_size=50)
EXTRA: dict[str, Any] = {
    "logit_bias": st.sampled_from([{}, {0: 2.25, 3: -math.inf, 60: 1.0}, {1: -100.0}]),
    "repeat_penalty": st.sampled_from([1.0, 1.3, 0.8]),
    "repeat_last_n": st.sampled_from([-1, 0, 1, 3, 64]),
    "presence_penalty": st.sampled_from([0.0, 1.7, -0.6]),
    "frequency_penalty": st.sampled_from([0.0, 0.4, -1.1]),
    "dry_multiplier": st.sampled_from([0.0, 0.8]),
    "dry_allowed_length": st.sampled_from([1, 2, 3]),
    "dry_penalty_last_n": st.sampled_from([-1, 0, 4, 9]),
    "dry_sequence_breakers": st.sampled_from([(), ("4",), ("12", "7"), ("\n",)]),
    "top_n_sigma": st.sampled_from([-1, 0, 0.4, 1.3]),
    "typical_p": st.sampled_from([0, 0.213, 0.6217, 1]),
    "xtc_probability": st.sampled_from([0, 0.5, 1]),
    "xtc_threshold": st.sampled_from([0, 0.0917, 0.2333, 0.6]),
    "dynatemp_range": st.sampled_from([0, 0.31, 5]),
    "dynatemp_exponent": st.sampled_from([0, 0.7, 1, 2]),
}
BASE: dict[str, Any] = {
    "temperature": st.sampled_from([0, 0.3, 1, 2.5]),
    "top_k": st.sampled_from([0, 1, 2, 7, 40]),
    "top_p": st.sampled_from([0, 0.3171, 0.6217, 0.9, 1]),
    "min_p": st.sampled_from([0, 0.011, 0.2, 0.7]),
    "seed": st.integers(0, 2**64 - 1),
}
# Few of the others at once: all together leave one token.
PARAMS = st.sets(st.sampled_from(sorted(EXTRA)), max_size=4).flatmap(
    lambda names: st.builds(SamplingParams, **BASE, **{name: EXTRA[name] for name in names})
)
TOKENS = st.lists(st.integers(0, 6), max_size=25)


def stepped(params: SamplingParams, n: int, step: Step) -> Sampler:
    sampler = Sampler(params, n, step.decodable, prompt=step.prompt, bytes_of=step.spell)
    for token_id in step.generated:
        sampler.accept(token_id)
    return sampler


@settings(max_examples=500, deadline=None)
@given(row=LOGITS, params=PARAMS, prompt=TOKENS, generated=TOKENS, padding=st.integers(0, 2))
@example([0.0, 1.0, -0.5], SamplingParams(1, 0, 0.62, 0, seed=1), [], [], 0)
@example([0.0] * 7, SamplingParams(1, 3, 1, 0, seed=1), [], [], 1)
def test_the_distribution_is_the_oracles(
    row: list[float], params: SamplingParams, prompt: list[int], generated: list[int], padding: int
) -> None:
    n = max(len(row), 7)  # the history's tokens are tokens
    row = row + [-math.inf] * (n - len(row))
    params = replace(params, logit_bias={i: b for i, b in params.logit_bias.items() if i < n})
    step = Step(params, n, prompt, generated)
    sampler = stepped(params, n + padding, step)
    logits = np.array([*row, *[math.nan] * padding], np.float32)
    expected = distribution(row, step)
    if not expected:
        with pytest.raises(SamplingError, match=rf"at step {len(generated)}: (every logit is -inf|logit_bias leaves)"):
            sampler.distribution(logits)
        return
    ids, probabilities = sampler.distribution(logits)
    assert ids.tolist() == sorted(expected)
    # a row of which nothing is cut is summed in float32
    np.testing.assert_allclose(probabilities, [expected[i] for i in sorted(expected)], rtol=2e-6, atol=1e-15)
    assert expected[sampler.sample(logits)] > 0


def test_the_order_is_llama_cpps() -> None:
    assert [stage.name for stage in PIPELINE] == [
        "constraint", "logit_bias", "penalties", "dry", "top_n_sigma", "top_k", "typical",
        "top_p", "min_p", "xtc", "temperature", "mirostat", "draw", "greedy",
    ]  # fmt: skip


def test_the_page_has_the_pipeline_and_every_setting() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "sampling.md").read_text()
    rows = [f"| {s.name} | {', '.join(s.settings)} | {s.about} |" for s in PIPELINE]
    assert "\n".join(rows) in page
    settings = page.partition("## The settings")[2].partition("At equal logits")[0]
    assert all(f"\n| {name} | " in settings for name in SamplingParams.__slots__)


def test_every_setting_belongs_to_one_stage() -> None:
    named = [setting for stage in PIPELINE for setting in stage.settings]
    assert sorted(named) == sorted(SamplingParams.__slots__)


@pytest.mark.parametrize(
    ("setting", "stages"),
    [
        ({}, ["top_k", "top_p", "min_p", "temperature", "draw"]),
        ({"temperature": 0, "xtc_probability": 1, "mirostat": 2}, ["greedy"]),
        ({"temperature": 0, "presence_penalty": 1, "top_n_sigma": 1}, ["penalties", "greedy"]),
        ({"mirostat": 1, "top_n_sigma": 1, "typical_p": 0.5}, ["temperature", "mirostat", "draw"]),
        ({"repeat_penalty": 1.1, "repeat_last_n": 0}, ["top_k", "top_p", "min_p", "temperature", "draw"]),
        (
            {"top_k": 0, "top_p": 1, "min_p": 0, "dry_multiplier": 1, "xtc_probability": 0.1, "dry_penalty_last_n": 9},
            ["dry", "xtc", "temperature", "draw"],
        ),
    ],
)
def test_stages_that_do_nothing_are_left_out(setting: dict[str, Any], stages: list[str]) -> None:
    assert list(Sampler(SamplingParams(**setting), 9, bytes_of=lambda _: b"").stages) == stages


# Pairs of neighbours whose exchange another distribution would show; the oracle above covers the rest.
ROW = np.array([3.0, 2.5, 1.0, 0.5, -1.0], np.float32)
OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 1}


def kept(prompt: list[int] | None = None, generated: tuple[int, ...] = (), **setting: Any) -> list[int]:
    sampler = Sampler(SamplingParams(**{**OFF, **setting}), 5, prompt=prompt or [], bytes_of=lambda _: b"")
    for token_id in generated:
        sampler.accept(token_id)
    return sampler.distribution(ROW)[0].tolist()


def test_bias_comes_before_penalties() -> None:
    # 0.5 - 1 is negative and is multiplied, to -2; divided first, it would be 0.125 - 1, which is above -1
    assert kept([3], logit_bias={3: -1.0}, repeat_penalty=4.0, repeat_last_n=-1, top_k=4) == [0, 1, 2, 4]


def test_penalties_come_before_truncation() -> None:
    assert kept([0], repeat_penalty=10.0, top_k=2) == [1, 2]


def test_top_k_comes_before_top_p() -> None:
    # of two tokens, 0.6 of the mass is one; of all, it takes two
    assert kept(top_k=2, top_p=0.6) == [0]
    assert kept(top_p=0.6) == [0, 1]


def test_what_follows_typical_looks_at_what_is_left() -> None:
    """The most likely token often isn't typical."""
    rng, gone = np.random.default_rng(0), 0
    for _ in range(400):
        row = (rng.standard_normal(12) * 2).astype(np.float32)
        setting = {"top_p": rng.choice([0, 0.5, 0.9, 1]), "min_p": rng.choice([0, 0.3, 0.7])}
        params = SamplingParams(**{**OFF, **setting, "typical_p": rng.choice([0.02, 0.2, 0.5])})
        expected = distribution(row.tolist(), Step(params, 12))
        ids, probabilities = Sampler(params, 12).distribution(row)
        assert dict(zip(ids.tolist(), probabilities.tolist(), strict=True)) == pytest.approx(expected, rel=2e-6)
        gone += int(row.argmax()) not in expected
    assert gone > 100


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("spread", [0.4, 2.0])
def test_dynamic_temperature_follows_the_entropy(spread: float, exponent: float) -> None:
    rng = np.random.default_rng(8)
    for width in (0.1, 1.0, 4.0):
        row = (rng.standard_normal(9) * width).astype(np.float32)
        params = SamplingParams(**{**OFF, "dynatemp_range": spread, "dynatemp_exponent": exponent, "top_k": 6})
        expected = distribution(row.tolist(), Step(params, 9))
        ids, probabilities = Sampler(params, 9).distribution(row)
        assert dict(zip(ids.tolist(), probabilities.tolist(), strict=True)) == pytest.approx(
            expected, rel=5e-6, abs=1e-30
        )


def test_truncation_comes_before_temperature() -> None:
    assert kept(temperature=100.0, top_p=0.5) == [0]
