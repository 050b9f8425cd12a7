"""Checks of settings: what is refused is named with its value and its range."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from minfer_models.sampling.errors import SamplingError


def require_number(name: str, value: Any, allowed: str, low: float, high: float = math.inf) -> None:
    """Raise SamplingError unless the value is a finite number from low to high."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SamplingError(f"{name} is {value!r}; it must be a number {allowed}")
    if not (math.isfinite(value) and low <= float(value) <= high):
        raise SamplingError(f"{name} is {value!r}; it must be {allowed}")


def require_integer(name: str, value: Any, allowed: str, low: int, high: int | None = None) -> None:
    """Raise SamplingError unless the value is an integer from low to high."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise SamplingError(f"{name} is {value!r}; it must be an integer {allowed}")
    number = int(value)
    if number < low or (high is not None and number > high):
        raise SamplingError(f"{name} is {value!r}; it must be {allowed}")
