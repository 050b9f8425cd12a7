"""How far apart two engines' answers are: the KL divergence of their next-token distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_models.scoring.distribution import kl_divergence, log_softmax

Rows = NDArray[np.floating[Any]]

ROWS_AT_ONCE = 16
"""Rows of logits taken to float64 together: a large vocabulary has a megabyte a row."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """KL(p || q) in nats over `tokens` positions; `same_top1` is the share of them with the same likeliest token."""

    tokens: int
    mean: float
    p99: float
    max: float
    same_top1: float


def divergence(p: Rows, q: Rows) -> Divergence:
    """KL of the softmax of logits `p` from that of `q`, both `[n_tokens, n_vocab]`.

    Summed in float64. Raises ValueError for shapes that differ, NaN and infinity.
    """
    if p.shape != q.shape or p.ndim != 2 or not p.size:
        raise ValueError(f"logits of shapes {p.shape} and {q.shape} can't be compared row by row")
    kl = np.concatenate([_kl(p[i : i + ROWS_AT_ONCE], q[i : i + ROWS_AT_ONCE]) for i in range(0, len(p), ROWS_AT_ONCE)])
    same = np.mean(p.argmax(axis=1) == q.argmax(axis=1))
    return Divergence(len(p), float(kl.mean()), float(np.quantile(kl, 0.99)), float(kl.max()), float(same))


def _kl(p: Rows, q: Rows) -> NDArray[np.float64]:
    return kl_divergence(log_softmax(p), log_softmax(q))
