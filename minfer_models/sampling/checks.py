"""Checks of settings: what is refused is named with its value and its range."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from minfer_models.sampling.errors import SamplingError

MOST_BIAS = 100.0


def require_number(name: str, value: Any, allowed: str, low: float, high: float = math.inf) -> None:
    """Raise SamplingError unless the value is a finite number from low to high."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SamplingError(f"{name} is {value!r}; it must be a number {allowed}")
    try:
        finite = math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        finite = False
    if not (finite and low <= float(value) <= high):
        also = "" if finite or math.isfinite(high) else ", and finite"
        raise SamplingError(f"{name} is {reprlib.repr(value)}; it must be {allowed}{also}")


def require_integer(name: str, value: Any, allowed: str, low: int, high: int | None = None) -> None:
    """Raise SamplingError unless the value is an integer from low to high."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise SamplingError(f"{name} is {value!r}; it must be an integer {allowed}")
    number = int(value)
    if number < low or (high is not None and number > high):
        raise SamplingError(f"{name} is {value!r}; it must be {allowed}")


def logit_biases(name: str, value: Any) -> dict[int, float]:
    """A copy of token id to bias; SamplingError unless ids are integers from 0 and biases in range, or -inf."""
    if not isinstance(value, Mapping):
        raise SamplingError(f"{name} is {value!r}; it must be a mapping from token ids to numbers")
    biases: dict[int, float] = {}
    for token_id, bias in value.items():
        require_integer(f"{name} has a token id that", token_id, "at least 0", low=0)
        allowed = f"between {-MOST_BIAS:g} and {MOST_BIAS:g}, or -inf (never)"
        if bias != -math.inf:
            require_number(f"{name} of token {token_id}", bias, allowed, low=-MOST_BIAS, high=MOST_BIAS)
        biases[int(token_id)] = float(bias)
    return biases


def texts(name: str, value: Any) -> tuple[str, ...]:
    """A tuple of the texts; SamplingError unless each is a str with something in it."""
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise SamplingError(f"{name} is {value!r}; it must be a list of texts")
    for text in value:
        if not isinstance(text, str) or not text:
            raise SamplingError(f"{name} has {text!r}; each must be a text that is not empty")
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise SamplingError(f"{name} has {text!r}; a lone surrogate is no text")
    return tuple(value)
