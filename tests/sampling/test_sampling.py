"""Single samplers: draws, edges, seeds, settings out of range and rows that are refused."""

from __future__ import annotations

import math
import re
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt
import pytest
from sampling_oracle import Step, distribution

from minfer_models.sampling import Sampler, SamplingError, SamplingParams, SamplingSettings, sampling_params
from minfer_models.sampling.params import SETTINGS
from minfer_models.sampling.uniforms import Uniforms

Row = npt.NDArray[np.float32]
OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def row(*values: float) -> Row:
    return np.array(values, dtype=np.float32)


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
    "setting",
    [
        {},
        {"temperature": 0.5},
        {"top_k": 3},
        {"top_p": 0.8},
        {"min_p": 0.2},
        {"temperature": 2, "top_k": 5},
        {"typical_p": 0.7},
        {"top_n_sigma": 0.8},
        {"temperature": 1.0, "dynatemp_range": 0.7, "dynatemp_exponent": 0.5},
        {"logit_bias": {0: 1.5, 3: -math.inf}},
    ],
)
def test_draws_follow_the_distribution(setting: dict[str, float]) -> None:
    logits = row(0.0, 1.0, -1.0, 2.0, 0.5, 1.5, -2.0, -math.inf)
    params = SamplingParams(**{**OFF, **setting, "seed": 20240726})
    expected = distribution(logits.tolist(), Step(params, 8))
    sampler = Sampler(params, 8)
    counts = np.zeros(8, np.int64)
    for _ in range(4000):
        counts[sampler.sample(logits)] += 1
    possible = sorted(i for i, p in expected.items() if p > 0)
    assert counts.sum() == counts[possible].sum()
    # The 0.9999 quantile for 7 or fewer degrees of freedom is below 30.
    assert chi_square(counts[possible], np.array([expected[i] for i in possible])) < 30


@pytest.mark.parametrize(
    "setting",
    [
        {"xtc_probability": 0.4, "xtc_threshold": 0.15},
        {"mirostat": 1, "mirostat_tau": 1.2},
        {"mirostat": 2, "mirostat_tau": 1.4},
        {"repeat_penalty": 1.7, "presence_penalty": 0.5},
        {"dry_multiplier": 1.0},
    ],
)
def test_first_draws_of_many_seeds_follow_the_distribution(setting: dict[str, float]) -> None:
    logits = row(0.0, 1.0, -1.0, 2.0, 0.5, 1.5, -2.0, -math.inf)
    prompt, counts, expected = [3, 1, 3, 5, 3, 1, 3], np.zeros(8, np.int64), np.zeros(8)
    for seed in range(2500):
        params = SamplingParams(**{**OFF, **setting, "seed": seed})
        mu = 2 * params.mirostat_tau
        for i, p in distribution(logits.tolist(), Step(params, 8, prompt, mu=mu)).items():
            expected[i] += p / 2500
        counts[Sampler(params, 8, prompt=prompt, bytes_of=lambda _: b"").sample(logits)] += 1
    possible = np.flatnonzero(expected)
    assert counts.sum() == counts[possible].sum()
    assert chi_square(counts[possible], expected[possible]) < 30


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
        ("temperature", math.nan, "at least 0, and finite"),
        ("temperature", math.inf, "at least 0, and finite"),
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
        ("typical_p", 1.01, "between 0 and 1"),
        ("top_n_sigma", -0.5, "at least 0"),
        ("top_n_sigma", math.nan, "at least 0"),
        ("xtc_probability", 2, "between 0 and 1"),
        ("xtc_threshold", -0.1, "between 0 and 1"),
        ("dynatemp_range", -1, "at least 0"),
        ("dynatemp_exponent", math.inf, "at least 0"),
        ("repeat_penalty", 0, "above 0"),
        ("repeat_penalty", -1.0, "above 0"),
        ("repeat_penalty", 1e39, "above 0 .*, within float32"),
        ("repeat_penalty", 1e-39, "above 0 .*, within float32"),
        ("repeat_last_n", -2, "at least 0"),
        ("presence_penalty", 2.1, "between -2 and 2"),
        ("frequency_penalty", -3, "between -2 and 2"),
        ("dry_multiplier", -0.1, "at least 0"),
        ("dry_base", 0.9, "at least 1"),
        ("dry_allowed_length", 0, "at least 1"),
        ("dry_penalty_last_n", -2, "at least 0"),
        ("dry_sequence_breakers", "\n", "a list of texts"),
        ("mirostat", 3, r"0 \(off\), 1 or 2"),
        ("mirostat", 1.0, r"an integer 0 \(off\), 1 or 2"),
        ("mirostat_tau", -1, "at least 0"),
        ("mirostat_tau", 1e39, "at least 0, within float32"),
        ("mirostat_eta", 1e39, "at least 0, within float32"),
        ("mirostat_eta", -0.1, "at least 0"),
        ("logit_bias", [3], "a mapping from token ids to numbers"),
    ],
)
def test_settings_out_of_range_are_named(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(SamplingError, match=rf"^{name} is {re.escape(repr(value))}; it must be {allowed}"):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("logit_bias", {3: 101}, "logit_bias of token 3 is 101; it must be between -100 and 100, or -inf (never)"),
        ("logit_bias", {3: math.inf}, "logit_bias of token 3 is inf; it must be between -100 and 100"),
        ("logit_bias", {3: "1"}, "logit_bias of token 3 is '1'; it must be a number between -100 and 100"),
        ("logit_bias", {-1: 1}, "logit_bias has a token id that is -1; it must be at least 0"),
        ("logit_bias", {"3": 1}, "logit_bias has a token id that is '3'; it must be an integer at least 0"),
        ("dry_sequence_breakers", ["a", ""], "dry_sequence_breakers has ''; each must be a text that is not empty"),
        ("dry_sequence_breakers", [b"a"], "dry_sequence_breakers has b'a'; each must be a text"),
        ("dry_sequence_breakers", ["a\ud800"], "dry_sequence_breakers has 'a\\ud800'; a lone surrogate is no text"),
    ],
)
def test_parts_of_settings_out_of_range_are_named(name: str, value: Any, message: str) -> None:
    with pytest.raises(SamplingError, match=re.escape(message)):
        SamplingParams(**{name: value})


def test_a_bias_of_a_token_that_is_not_there_is_refused() -> None:
    with pytest.raises(SamplingError, match="logit_bias has token id 9; the vocabulary has ids 0 to 8"):
        Sampler(SamplingParams(logit_bias={9: 1.0}), 9)


def test_breakers_need_a_vocabulary() -> None:
    with pytest.raises(SamplingError, match="dry_sequence_breakers need a vocabulary"):
        Sampler(SamplingParams(dry_multiplier=1.0), 9)
    assert "dry" in Sampler(SamplingParams(dry_multiplier=1.0, dry_sequence_breakers=()), 9).stages


def test_settings_are_the_same_everywhere() -> None:
    assert tuple(SamplingSettings.__annotations__) == SETTINGS
    assert get_type_hints(SamplingSettings) == get_type_hints(SamplingParams)


def test_a_setting_that_does_not_exist_is_named_with_the_nearest() -> None:
    with pytest.raises(SamplingError, match="no sampling setting is called 'topp'; did you mean top_p"):
        sampling_params(topp=1)
    with pytest.raises(SamplingError, match="no sampling setting is called 'zzz'; settings: temperature, top_k"):
        sampling_params(zzz=1)


def test_params_are_values() -> None:
    bias = {3: 1.0}
    params = SamplingParams(logit_bias=bias, dry_sequence_breakers=["a"])
    bias[3] = 2.0
    assert params == SamplingParams(logit_bias={3: 1}, dry_sequence_breakers=("a",))
    assert hash(params) == hash(SamplingParams(logit_bias={4: 1}, dry_sequence_breakers=("a",)))


REPEATED = [0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("last_n", [0, 64])
def test_openai_penalties_count_generated_tokens_only(last_n: int) -> None:
    logits = row(1.0, 0.5, 0.0, -1.0)
    setting = {"temperature": 0, "presence_penalty": 2.0, "frequency_penalty": 2.0, "repeat_last_n": last_n}
    sampler = Sampler(SamplingParams(**setting), 4, prompt=REPEATED)
    # 0 is generated first, whatever the prompt has; then it has lost 4, and so has 1
    assert [sampler.sample(logits) for _ in range(4)] == [0, 1, 2, 3]
    assert sampler.sample(logits) == 0


@pytest.mark.parametrize(("last_n", "chosen"), [(-1, 1), (6, 1), (3, 0), (0, 0)])
def test_repeat_penalty_counts_the_prompt_within_its_window(last_n: int, chosen: int) -> None:
    params = SamplingParams(temperature=0, repeat_penalty=4.0, repeat_last_n=last_n)
    sampler = Sampler(params, 4, prompt=[0, 2, 2, 3, 3, 3])
    assert sampler.sample(row(1.0, 0.5, 0.0, -1.0)) == chosen


def test_greedy_is_behind_penalties_and_bias() -> None:
    params = SamplingParams(temperature=0, logit_bias={1: -5.0}, presence_penalty=2.0, top_k=1, xtc_probability=1.0)
    sampler = Sampler(params, 4)
    assert [sampler.sample(row(1.0, 3.0, 1.0, -2.0)) for _ in range(3)] == [0, 2, 0]


def test_tokens_of_the_prompt_that_cannot_be_chosen_do_no_harm() -> None:
    params = SamplingParams(temperature=0, repeat_penalty=2.0, dry_multiplier=1.0, logit_bias={8: 1.0})
    sampler = Sampler(params, 9, 5, prompt=[8, 7, 8, 7, 8], bytes_of=lambda _: b"")
    assert sampler.sample(row(*range(9))) == 4


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
    monkeypatch.setattr(Uniforms, "draw", lambda _self, _step: uniform)
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
def test_a_steps_numbers_are_the_first_of_its_own_generator(seed: int, step: int) -> None:
    uniforms = Uniforms(seed)
    steps = [*range(step, step + 70), step, step + 1000, step + 999]
    expected = [np.random.Generator(np.random.Philox(key=seed, counter=s)).random(2).tolist() for s in steps]
    assert [[uniforms.draw(s), uniforms.coin(s)] for s in steps] == expected


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("top_k", [0, 3])
def test_a_sigma_beyond_float32_keeps_all(top_k: int) -> None:
    settings = {**OFF, "top_k": top_k}
    logits = row(3, 1, -2, 0)
    ids, probabilities = Sampler(SamplingParams(**settings, top_n_sigma=1e300), 4).distribution(logits)
    expected = Sampler(SamplingParams(**settings), 4).distribution(logits)
    assert ids.tolist() == expected[0].tolist()
    assert probabilities == pytest.approx(expected[1], rel=1e-6)
