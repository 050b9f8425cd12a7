"""The options of a sampler on the command line and as keywords in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_calls import minfer, usage_error

from minfer_models import load
from minfer_models.cli.sampling_options import OPTIONS
from minfer_models.sampling import SamplingError, SamplingParams
from minfer_models.sampling.params import SETTINGS

PROMPT = "One, two, three"
GIVEN: dict[str, tuple[list[str], Any]] = {
    "temperature": (["--temperature", "0.7"], 0.7),
    "top_k": (["--top-k", "5"], 5),
    "top_p": (["--top-p", "0.8"], 0.8),
    "min_p": (["--min-p", "0.1"], 0.1),
    "typical_p": (["--typical-p", "0.9"], 0.9),
    "top_n_sigma": (["--top-n-sigma", "1.5"], 1.5),
    "xtc_probability": (["--xtc-probability", "0.5"], 0.5),
    "xtc_threshold": (["--xtc-threshold", "0.2"], 0.2),
    "dynatemp_range": (["--dynatemp-range", "0.3"], 0.3),
    "dynatemp_exponent": (["--dynatemp-exponent", "2"], 2.0),
    "repeat_penalty": (["--repeat-penalty", "1.1"], 1.1),
    "repeat_last_n": (["--repeat-last-n", "-1"], -1),
    "presence_penalty": (["--presence-penalty", "-0.5"], -0.5),
    "frequency_penalty": (["--frequency-penalty", "0.5"], 0.5),
    "dry_multiplier": (["--dry-multiplier", "0.8"], 0.8),
    "dry_base": (["--dry-base", "2"], 2.0),
    "dry_allowed_length": (["--dry-allowed-length", "3"], 3),
    "dry_penalty_last_n": (["--dry-penalty-last-n", "99"], 99),
    "dry_sequence_breakers": (["--dry-sequence-breaker", ";", "--dry-sequence-breaker", "!?"], [";", "!?"]),
    "mirostat": (["--mirostat", "0"], 0),
    "mirostat_tau": (["--mirostat-tau", "4"], 4.0),
    "mirostat_eta": (["--mirostat-eta", "0.2"], 0.2),
    "logit_bias": (["--logit-bias", "7=-1.5", "--logit-bias", "9=-inf"], {"7": -1.5, "9": "-inf"}),
    "seed": (["--seed", "42"], 42),
}


def test_every_setting_is_an_option_with_its_default() -> None:
    assert tuple(option.setting for option in OPTIONS) == SETTINGS
    params = SamplingParams()
    lists = ("dry_sequence_breakers", "logit_bias")
    changed = {o.setting: o.default for o in OPTIONS if o.default != getattr(params, o.setting)}
    assert changed == {"temperature": 0.0, **dict.fromkeys(lists)}
    about = next(o.help for o in OPTIONS if o.setting == "dry_sequence_breakers")
    assert about.endswith('Unset: newline : " *')
    assert tuple(params.dry_sequence_breakers) == ("\n", ":", '"', "*")


def test_every_option_arrives(tiny: Path) -> None:
    arguments = [word for words, _ in GIVEN.values() for word in words]
    told = minfer("run", tiny, "-p", PROMPT, "-n", 3, "--json", *arguments).json()
    assert {name: told["settings"][name] for name in GIVEN if name != "seed"} | {"seed": told["seed"]} == {
        name: value for name, (_, value) in GIVEN.items()
    }
    assert told["settings"]["stages"] == [
        "logit_bias", "penalties", "dry", "top_n_sigma", "top_k", "typical", "top_p", "min_p",
        "xtc", "temperature", "draw",
    ]  # fmt: skip


def test_without_breakers(tiny: Path) -> None:
    asked = ("--dry-multiplier", 1, "--dry-sequence-breaker", "none", "--mirostat", 2, "--temp", 1)
    told = minfer("run", tiny, "-p", PROMPT, "-n", 2, "--json", *asked).json()["settings"]
    assert told["dry_sequence_breakers"] == []
    assert told["stages"] == ["dry", "temperature", "mirostat", "draw"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--presence-penalty", "3"], "--presence-penalty is 3.0; it must be between -2 and 2"),
        (["--mirostat", "3"], "--mirostat is 3; it must be 0 (off), 1 or 2"),
        (["--logit-bias", "3"], "--logit-bias is '3', expected ID=BIAS, such as 15=-1.5 or 15=-inf"),
        (["--logit-bias", "3=nan"], "--logit-bias of token 3 is nan; it must be between -100 and 100, or -inf (never)"),
        (["--dry-sequence-breaker", ""], "--dry-sequence-breaker has ''; each must be a text that is not empty"),
    ],
)
def test_options_out_of_range_are_called_as_they_were_given(arguments: list[str], message: str) -> None:
    assert usage_error(minfer("run", "no-such-model", "-p", "a", *arguments)) == f"Invalid value: {message}"


def test_python_takes_every_setting(tiny: Path) -> None:
    values: dict[str, Any] = {name: value for name, (_, value) in GIVEN.items()}
    values["logit_bias"] = {7: -1.5, 9: float("-inf")}
    with load(tiny, threads=1) as llm:
        generation = llm.generate(PROMPT, max_tokens=12, **values)
        assert generation.sampler.params == SamplingParams(**values)
        assert generation.text()
        assert llm.generate(PROMPT).sampler.stages == ("greedy",)
        with pytest.raises(SamplingError, match="no sampling setting is called 'topk'; did you mean top_k"):
            llm.generate(PROMPT, topk=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("seed", [0, 42, 2**32 - 1])
def test_the_same_seed_is_the_same_text_streamed_or_at_once(tiny: Path, seed: int) -> None:
    with load(tiny, threads=1) as llm:
        first, second, other = (
            llm.generate(PROMPT, max_tokens=12, temperature=5.0, top_k=0, seed=s) for s in (seed, seed, seed + 1)
        )
        assert "".join(list(first)) == second.text() != other.text()
        assert first.seed == second.seed == seed


def test_absent_and_minus_one_draw_a_seed_and_report_it(tiny: Path) -> None:
    with load(tiny, threads=1) as llm:
        drawn = [llm.generate(PROMPT, max_tokens=8, temperature=9.0, top_k=0, seed=seed) for seed in (None, None, -1)]
        texts = [generation.text() for generation in drawn]
        assert len({generation.seed for generation in drawn}) == 3
        for generation, text in zip(drawn, texts, strict=True):
            assert llm.generate(PROMPT, max_tokens=8, temperature=9.0, top_k=0, seed=generation.seed).text() == text


class Barred:
    """Lets one token through, twice, and is finished then."""

    def __init__(self, token_id: int, n: int) -> None:
        self._mask = np.zeros(-(-n // 32), np.uint32)
        self._mask[token_id // 32] = 1 << (token_id % 32)
        self.taken: list[int] = []

    @property
    def finished(self) -> bool:
        return len(self.taken) >= 2

    def mask(self) -> np.ndarray | None:
        return None if self.finished else self._mask

    def accept(self, token_id: int) -> None:
        self.taken.append(token_id)


def test_a_generation_follows_its_constraint(tiny: Path) -> None:
    with load(tiny, threads=1) as llm:
        free = llm.generate(PROMPT, max_tokens=4)
        free.text()
        other = next(i for i in range(97, 122) if i not in free.token_ids)
        constraint = Barred(other, llm.engine.model.config.n_vocab)
        bound = llm.generate(PROMPT, max_tokens=4, constraint=constraint)
        bound.text()
        assert bound.token_ids[:2] == [other, other]
        assert constraint.taken == bound.token_ids
        assert json.dumps(bound.sampler.stages) == '["constraint", "greedy"]'
