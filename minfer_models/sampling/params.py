"""The settings of a sampler: their names, defaults and ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, TypedDict

from minfer_models.sampling.checks import logit_biases, require_integer, require_number, texts
from minfer_models.sampling.errors import SamplingError

SEED_LIMIT = 1 << 64
BREAKERS = ("\n", ":", '"', "*")
SMALLEST = 2.0**-126
"""Normal float32: what penalties are computed in."""
LARGEST = 2.0**127
_NUMBERS = {
    "temperature": ("at least 0", 0.0, math.inf),
    "top_p": ("between 0 and 1", 0.0, 1.0),
    "min_p": ("between 0 and 1", 0.0, 1.0),
    "typical_p": ("between 0 and 1", 0.0, 1.0),
    "xtc_probability": ("between 0 and 1", 0.0, 1.0),
    "xtc_threshold": ("between 0 and 1", 0.0, 1.0),
    "dynatemp_range": ("at least 0 (0: off)", 0.0, math.inf),
    "dynatemp_exponent": ("at least 0", 0.0, math.inf),
    "repeat_penalty": ("above 0 (1: off), within float32", SMALLEST, LARGEST),
    "presence_penalty": ("between -2 and 2", -2.0, 2.0),
    "frequency_penalty": ("between -2 and 2", -2.0, 2.0),
    "dry_multiplier": ("at least 0 (0: off)", 0.0, math.inf),
    "dry_base": ("at least 1", 1.0, math.inf),
    "mirostat_tau": ("at least 0, within float32", 0.0, LARGEST),
    "mirostat_eta": ("at least 0, within float32", 0.0, LARGEST),
}
_INTEGERS = {
    "top_k": ("at least 0 (0: off)", 0, None),
    "repeat_last_n": ("at least 0 (0: off), or -1 (all)", -1, None),
    "dry_allowed_length": ("at least 1", 1, None),
    "dry_penalty_last_n": ("at least 0 (0: off), or -1 (all)", -1, None),
    "mirostat": ("0 (off), 1 or 2", 0, 2),
}


class SamplingSettings(TypedDict, total=False):
    """The fields of SamplingParams as keywords."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    dynatemp_range: float
    dynatemp_exponent: float
    repeat_penalty: float
    repeat_last_n: int
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: Sequence[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    logit_bias: Mapping[int, float]
    seed: int | None


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose a token. docs/sampling.md has the formulas and the order.

    temperature: 0 takes the most likely token, the lowest id on ties; above 0 divides the logits.
    top_k: keep the k most likely tokens, 0 keeps all.
    top_p: keep the fewest most likely tokens whose probabilities reach p; 1 keeps all, 0 one.
    min_p: keep tokens at least this fraction as likely as the most likely one; 0 keeps all.
    typical_p: keep the fewest tokens, those of the most typical surprise first, whose probabilities reach p; 1: all.
    top_n_sigma: keep logits within n standard deviations of the largest; 0 or -1 keeps all.
    xtc_probability, xtc_threshold: how often the likely tokens are left out, all but the least likely of those that
        have at least the threshold's probability; 0 never.
    dynatemp_range, dynatemp_exponent: the temperature moves by up to the range with the distribution's entropy.
    repeat_penalty: divides the positive logits, multiplies the negative ones, of tokens among the last `repeat_last_n`
        of prompt and text (-1: all, 0: none); 1 is off.
    presence_penalty, frequency_penalty: taken off the logits of generated tokens, once and per occurrence.
    dry_multiplier: of the penalty for a token that continues a repetition; 0 is off. A repetition of length L of the
        last `dry_penalty_last_n` tokens (-1: all) costs multiplier * dry_base ** (L - dry_allowed_length), from the
        allowed length on; none reaches over a text of `dry_sequence_breakers`.
    mirostat: 1 or 2 instead of every truncation: keeps the surprise near `mirostat_tau` bits, learning with rate
        `mirostat_eta`; 0 is off.
    logit_bias: token id to what is added to its logit; -inf is never.
    seed: 0 to 2^64-1; None or -1 draws one, which the Sampler reports.

    At equal logits lower ids come first. Raises SamplingError naming the setting, its value and its range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: Sequence[str] = BREAKERS
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float], hash=False)
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, (allowed, low, high) in _NUMBERS.items():
            require_number(name, getattr(self, name), allowed, low, high)
        for name, (allowed, least, most) in _INTEGERS.items():
            require_integer(name, getattr(self, name), allowed, least, most)
        if self.top_n_sigma != -1:
            require_number("top_n_sigma", self.top_n_sigma, "at least 0 (0 or -1: off)", low=0.0)
        if self.seed is not None:
            require_integer("seed", self.seed, "between 0 and 2^64-1, or -1 (random)", low=-1, high=SEED_LIMIT - 1)
        object.__setattr__(self, "logit_bias", logit_biases("logit_bias", self.logit_bias))
        breakers = texts("dry_sequence_breakers", self.dry_sequence_breakers)
        object.__setattr__(self, "dry_sequence_breakers", breakers)


SETTINGS = tuple(field.name for field in fields(SamplingParams))
"""Their names."""


def sampling_params(**settings: Any) -> SamplingParams:
    """The settings as SamplingParams; SamplingError for a name that isn't a setting, with what may have been meant."""
    for name in settings.keys() - set(SETTINGS):
        nearest = get_close_matches(name, SETTINGS, n=1)
        hint = f"did you mean {nearest[0]}? " if nearest else ""
        raise SamplingError(f"no sampling setting is called {name!r}; {hint}settings: {', '.join(SETTINGS)}")
    return SamplingParams(**settings)
