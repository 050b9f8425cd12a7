"""Why no token can be chosen."""

from __future__ import annotations

import math

import numpy as np

from minfer_models.sampling.weights import Logits

_NONE = "every logit is -inf"


class NothingToChooseError(Exception):
    """A row has NaN, +inf, or nothing but -inf; it goes no further than the sampler."""


def why_none(now: str | None, before: str | None, constrained: bool) -> str:
    """From what is wrong with the row that was chosen from, and with the caller's logits."""
    if before is not None:
        return before
    if now == _NONE:
        return "the constraint allows none that has a logit" if constrained else "logit_bias leaves none"
    return f"{now} behind the penalties"


def not_finite(row: Logits) -> str | None:
    """What is wrong with a row, if something is."""
    best = int(np.argmax(row))  # the first NaN, if there is one: numpy orders NaN above all
    top = float(row[best])
    if math.isfinite(top):
        return None
    return _NONE if top == -math.inf else f"the logit of id {best} is {top}"
