"""SETTINGS of one side: `threads=2 kv=f16 fusions_off=swiglu,add_rms_norm isa=avx2 chunk=128`."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any

from minfer_models.bench.loading import EngineChoices
from minfer_models.bench.workload import BenchError

NAMES = tuple(spec.name for spec in fields(EngineChoices))
COUNTS = ("n_ctx", "threads", "chunk")
LISTS = ("fusions_off",)
SWITCHES = ("capture", "async_copies", "invariant", "decode_apart")

AT_RUN_TIME = frozenset({"threads", "isa", "capture", "async_copies", "decode_apart"})
"""What makes a difference although the plans are equal: by whom and how the plan's kernels are run."""
CHANGES_BITS = frozenset({"kv", "devices", "invariant", "decode_apart"})
"""Settings whose sides aren't promised to compute the same bits; with any other, they are."""


def parse_settings(option: str, text: str, base: EngineChoices) -> EngineChoices:
    """`base` with what `text` names replaced.

    Raises BenchError for a name that isn't a setting, listing those that are, for a name given twice and for a value
    that the setting doesn't take; EngineError for what the engine refuses.
    """
    given: dict[str, Any] = {}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if not equals:
            raise BenchError(f"{option}: expected NAME=VALUE, got {word!r}; settings: {', '.join(NAMES)}")
        if name not in NAMES:
            nearest = get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {nearest[0]}? " if nearest else ""
            raise BenchError(f"{option}: no setting is called {name!r}; {hint}settings: {', '.join(NAMES)}")
        if name in given:
            raise BenchError(f"{option}: {name} is given twice")
        given[name] = _value(option, name, value)
    return replace(base, **given)


def _value(option: str, name: str, text: str) -> Any:
    if name in LISTS:
        return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if name in SWITCHES:
        if text not in ("0", "1"):
            raise BenchError(f"{option}: {name} is {text!r}, expected 0 or 1")
        return text == "1"
    if name not in COUNTS:
        return text
    if not text.isdecimal():
        raise BenchError(f"{option}: {name} is {text!r}, expected a whole number")
    return int(text)
