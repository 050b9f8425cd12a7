"""Perplexity of a text, and the divergence of two models over it.

Definitions and errors are those of llama.cpp's perplexity tool (`--kl-divergence` for two models).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minfer_models.engine import TokenSequence
from minfer_models.llm import LLM
from minfer_models.scoring.distribution import kl_divergence, log_softmax
from minfer_models.scoring.moments import Estimate, Moments
from minfer_models.scoring.windows import ScoringError, Window, cut

ROWS = 64
"""Rows of logits at once: a vocabulary of 150,000 takes 40 MB for them, and a whole window 310."""


Heard = Callable[[int, int, float], None]
"""Hears, after every window, how many of how many are done and the perplexity so far."""


@dataclass(frozen=True, slots=True)
class Score:
    """Perplexity over `tokens` scored tokens of `windows` windows; `read` counts all tokens that were fed."""

    ppl: Estimate
    tokens: int
    windows: int
    read: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A model against a reference over the same tokens. KL(reference || model) in nats a token."""

    ppl: Estimate
    reference_ppl: Estimate
    ratio: Estimate
    kl: Estimate
    kl_median: float
    kl_p99: float
    kl_max: float
    same_top1: Estimate
    tokens: int
    windows: int
    read: int


def perplexity(llm: LLM, text: str, n_ctx: int, stride: int | None = None, heard: Heard | None = None) -> Score:
    """The perplexity of `text`. Raises ScoringError for a text too short, or logits that aren't finite."""
    ids = token_ids(llm, text)
    windows, sums = cut(len(ids), n_ctx, stride), Moments(1)
    for done, window in enumerate(windows, 1):
        for logits, targets in scored_rows(llm, ids, window):
            sums.add(-picked(log_softmax(logits), targets)[:, None])
        _tell(heard, done, len(windows), sums)
    return Score(sums.exponential([1]), sums.count, len(windows), _read(windows))


def compare(
    llm: LLM, reference: LLM, text: str, n_ctx: int, stride: int | None = None, heard: Heard | None = None
) -> Comparison:
    """`llm` against `reference`, both run window by window, so that neither's logits are kept for long.

    The two may be one: it is run twice, and the logits of a window are kept meanwhile.

    Raises ScoringError for different vocabularies, a text too short, or logits that aren't finite.
    """
    require_same_vocabulary(llm, reference)
    ids = token_ids(llm, text)
    if token_ids(reference, text) != ids:
        raise ScoringError("the two models cut the text into different tokens: their predictions can't be compared")
    windows, sums, kls = cut(len(ids), n_ctx, stride), Moments(4), list[NDArray[np.float64]]()
    for done, window in enumerate(windows, 1):
        of_reference = scored_rows(reference, ids, window)
        if llm.engine is reference.engine:  # it has room for one window at a time
            of_reference = iter([(logits.copy(), targets) for logits, targets in of_reference])
        for (ours, targets), (theirs, _) in zip(scored_rows(llm, ids, window), of_reference, strict=True):
            q, p = log_softmax(ours), log_softmax(theirs)
            kl = kl_divergence(p, q)
            same = (ours.argmax(axis=1) == theirs.argmax(axis=1)).astype(float)
            sums.add(np.stack([-picked(q, targets), -picked(p, targets), kl, same], axis=1))
            kls.append(kl)
        _tell(heard, done, len(windows), sums)
    return _comparison(sums, np.concatenate(kls), windows)


def _comparison(sums: Moments, kl: NDArray[np.float64], windows: list[Window]) -> Comparison:
    return Comparison(
        ppl=sums.exponential([1, 0, 0, 0]),
        reference_ppl=sums.exponential([0, 1, 0, 0]),
        ratio=sums.exponential([1, -1, 0, 0]),
        kl=sums.weighted([0, 0, 1, 0]),
        kl_median=float(np.median(kl)),
        kl_p99=float(np.quantile(kl, 0.99)),
        kl_max=float(kl.max()),
        same_top1=sums.weighted([0, 0, 0, 1]),
        tokens=sums.count,
        windows=len(windows),
        read=_read(windows),
    )


def require_same_vocabulary(llm: LLM, reference: LLM) -> None:
    """Raise ScoringError, with both sizes, unless the two models' tokens are the same."""
    ours, theirs = (m.engine.model.config.n_vocab for m in (llm, reference))
    if ours != theirs or llm.tokenizer.n_vocab != reference.tokenizer.n_vocab:
        raise ScoringError(
            f"the vocabularies differ: {ours} logits and {llm.tokenizer.n_vocab} tokens against {theirs} and "
            f"{reference.tokenizer.n_vocab}"
        )
    key = "tokenizer.ggml.tokens"
    if list(llm.metadata.get(key, ())) != list(reference.metadata.get(key, ())):
        raise ScoringError(f"the vocabularies differ: both have {ours} tokens, and not the same ones")


def token_ids(llm: LLM, text: str) -> list[int]:
    """The text as plain text, with the BOS that the model asks for."""
    return llm.tokenizer.encode(text, add_bos=None)


def scored_rows(llm: LLM, ids: list[int], window: Window) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Logits `[n, n_vocab]` and the tokens `[n]` that they should have predicted, in order.

    A model that wants BOS gets it in the place of every window's first token, as in llama.cpp.
    """
    part = ids[window.start : window.stop]
    if llm.tokenizer.add_bos and llm.tokenizer.bos is not None:
        part = [llm.tokenizer.bos, *part[1:]]
    before = window.first - 1
    with TokenSequence(llm.engine, len(part)) as sequence:
        if before:
            sequence.feed(part[:before], "none")
        for start in range(before, len(part) - 1, ROWS):
            stop = min(start + ROWS, len(part) - 1)
            logits = sequence.feed(part[start:stop], "all")
            yield logits, np.array(part[start + 1 : stop + 1], np.int64)


def picked(rows: NDArray[np.float64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """One entry of every row."""
    return np.take_along_axis(rows, columns[:, None], axis=1)[:, 0]


def _tell(heard: Heard | None, done: int, total: int, sums: Moments) -> None:
    if heard is not None:
        mean = float(sums.mean()[0])
        heard(done, total, math.exp(min(mean, 700.0)))


def _read(windows: list[Window]) -> int:
    return sum(window.stop - window.start for window in windows)
