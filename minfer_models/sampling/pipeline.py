"""The order in which a token is chosen, as data.

It is llama.cpp's default order, with the constraint and the logit bias before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minfer_models.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of the pipeline: its name, the settings it reads, what it does, and when it does something."""

    name: str
    settings: tuple[str, ...]
    about: str
    active: Callable[[SamplingParams], bool]


def _truncates(p: SamplingParams) -> bool:
    return p.temperature > 0 and p.mirostat == 0


def _penalizes(p: SamplingParams) -> bool:
    repeats = p.repeat_penalty != 1 and p.repeat_last_n != 0
    return repeats or p.presence_penalty != 0 or p.frequency_penalty != 0


PIPELINE = (
    Stage("constraint", (), "Tokens that a grammar doesn't allow get a logit of -inf.", lambda p: False),
    Stage("logit_bias", ("logit_bias",), "Adds to the logits of single tokens.", lambda p: bool(p.logit_bias)),
    Stage(
        "penalties",
        ("repeat_penalty", "repeat_last_n", "presence_penalty", "frequency_penalty"),
        "Makes recent tokens of prompt and text less likely, then takes from the logits of generated tokens.",
        _penalizes,
    ),
    Stage(
        "dry",
        ("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"),
        "Takes from the logits of tokens that would continue a repetition.",
        lambda p: p.dry_multiplier > 0 and p.dry_penalty_last_n != 0,
    ),
    Stage(
        "top_n_sigma",
        ("top_n_sigma",),
        "Keeps logits within n standard deviations of the largest.",
        lambda p: _truncates(p) and p.top_n_sigma > 0,
    ),
    Stage("top_k", ("top_k",), "Keeps the k most likely tokens.", lambda p: _truncates(p) and p.top_k > 0),
    Stage("typical", ("typical_p",), "Keeps the most typical tokens.", lambda p: _truncates(p) and p.typical_p < 1),
    Stage("top_p", ("top_p",), "Keeps the nucleus of the distribution.", lambda p: _truncates(p) and p.top_p < 1),
    Stage(
        "min_p",
        ("min_p",),
        "Keeps tokens likely enough, relative to the likeliest.",
        lambda p: _truncates(p) and p.min_p > 0,
    ),
    Stage(
        "xtc",
        ("xtc_probability", "xtc_threshold"),
        "Leaves the top choices out, now and then.",
        lambda p: _truncates(p) and p.xtc_probability > 0 and p.xtc_threshold <= 0.5,
    ),
    Stage(
        "temperature",
        ("temperature", "dynatemp_range", "dynatemp_exponent"),
        "Divides the logits.",
        lambda p: p.temperature > 0,
    ),
    Stage(
        "mirostat",
        ("mirostat", "mirostat_tau", "mirostat_eta"),
        "Cuts where the surprise stays near its target; the truncations above are off.",
        lambda p: p.temperature > 0 and p.mirostat > 0,
    ),
    Stage("draw", ("seed",), "Draws by probability.", lambda p: p.temperature > 0),
    Stage("greedy", (), "Takes the most likely token.", lambda p: p.temperature == 0),
)


def active(params: SamplingParams, constrained: bool = False) -> tuple[str, ...]:
    """The names of the stages that do something with these settings, in order."""
    return tuple(s.name for s in PIPELINE if s.active(params) or (constrained and s.name == "constraint"))
