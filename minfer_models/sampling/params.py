"""The settings of a sampler."""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, TypedDict

from minfer_models.sampling.checks import require_integer, require_number
from minfer_models.sampling.errors import SamplingError

SEED_LIMIT = 1 << 64


class SamplingSettings(TypedDict, total=False):
    """The fields of SamplingParams as keywords."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int | None


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose a token.

    temperature: 0 takes the most likely token, the lowest id on ties; above 0 divides the logits.
    top_k: keep the k most likely tokens, 0 keeps all.
    top_p: keep the fewest most likely tokens whose probabilities reach p; 1 keeps all, 0 one.
    min_p: keep tokens at least this fraction as likely as the most likely one; 0 keeps all.
    seed: 0 to 2^64-1; None or -1 draws one, which the Sampler reports.
    At equal logits lower ids come first. Raises SamplingError naming the setting, its value and its range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int | None = None

    def __post_init__(self) -> None:
        require_number("temperature", self.temperature, "at least 0", low=0.0)
        require_integer("top_k", self.top_k, "at least 0 (0: off)", low=0)
        require_number("top_p", self.top_p, "between 0 and 1", low=0.0, high=1.0)
        require_number("min_p", self.min_p, "between 0 and 1", low=0.0, high=1.0)
        if self.seed is not None:
            require_integer("seed", self.seed, "between 0 and 2^64-1, or -1 (random)", low=-1, high=SEED_LIMIT - 1)


SETTINGS = tuple(field.name for field in fields(SamplingParams))
"""Their names."""


def sampling_params(**settings: Any) -> SamplingParams:
    """The settings as SamplingParams; SamplingError for a name that isn't a setting, with what may have been meant."""
    for name in settings.keys() - set(SETTINGS):
        nearest = get_close_matches(name, SETTINGS, n=1)
        hint = f"did you mean {nearest[0]}? " if nearest else ""
        raise SamplingError(f"no sampling setting is called {name!r}; {hint}settings: {', '.join(SETTINGS)}")
    return SamplingParams(**settings)
