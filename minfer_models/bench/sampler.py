"""The sampler of a decode test, as the command line names it."""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from minfer_models.bench.workload import BenchError
from minfer_models.sampling import SamplingError, SamplingParams

SEED = 0
"""Unless another is given: every repetition chooses the same tokens."""
GREEDY = "greedy"
DEFAULT = "default"
NAMES = tuple(spec.name for spec in fields(SamplingParams) if spec.name not in ("logit_bias", "dry_sequence_breakers"))
"""The settings that are numbers."""
INTEGERS = ("top_k", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n", "mirostat", "seed")
_ALWAYS = ("temperature", "top_k", "top_p", "min_p", "seed")


def parse_sampler(option: str, text: str) -> SamplingParams:
    """`greedy`, `default`, or `NAME=VALUE` pairs with commas between them: what isn't named is the default's.

    Raises BenchError for a name that isn't a setting, listing those that are, for a name given twice and for a value
    that isn't a number or is out of range.
    """
    if text in (GREEDY, DEFAULT):
        return SamplingParams(temperature=0.0, seed=SEED) if text == GREEDY else SamplingParams(seed=SEED)
    given: dict[str, Any] = {}
    for word in text.split(","):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals:
            raise BenchError(
                f"{option} is {text!r}, expected {GREEDY}, {DEFAULT} or NAME=VALUE,...: {', '.join(NAMES)}"
            )
        if name not in NAMES:
            nearest = get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {nearest[0]}? " if nearest else ""
            raise BenchError(f"{option}: no setting is called {name!r}; {hint}settings: {', '.join(NAMES)}")
        if name in given:
            raise BenchError(f"{option}: {name} is given twice")
        given[name] = _value(option, name, value)
    try:
        params = SamplingParams(**{"seed": SEED, **given})
    except SamplingError as error:
        raise BenchError(f"{option}: {error}") from None
    if params.seed == -1:
        raise BenchError(f"{option}: seed is -1; a test chooses the same tokens every time, give a seed from 0")
    return params


def sampler_text(params: SamplingParams) -> str:
    """`greedy`, or settings as `parse_sampler` reads them: the usual ones, and those that aren't the default's."""
    if params == parse_sampler("", GREEDY):
        return GREEDY
    default = SamplingParams()
    said = {name: getattr(params, name) for name in NAMES}
    return ",".join(f"{n}={v}" for n, v in said.items() if n in _ALWAYS or v != getattr(default, n))


def _value(option: str, name: str, text: str) -> int | float:
    kind, called = (int, "a whole number") if name in INTEGERS else (float, "a number")
    try:
        return kind(text)
    except ValueError:
        raise BenchError(f"{option}: {name} is {text!r}, expected {called}") from None
