"""The usual choice in one native call: greedy, or top-k, top-p, min-p and a temperature, behind biases and penalties.

Behind a forward the caches hold weights: an operation of numpy that takes a microsecond in a loop takes ten there.
"""

from __future__ import annotations

import math

import numpy as np

from minfer_models.sampling.constraint import Mask
from minfer_models.sampling.history import History
from minfer_models.sampling.largest import Chooser, Largest
from minfer_models.sampling.logit_bias import LogitBias
from minfer_models.sampling.min_p import MinP
from minfer_models.sampling.narrow import Narrow
from minfer_models.sampling.params import SamplingParams
from minfer_models.sampling.penalties import row_penalties
from minfer_models.sampling.top_p import SHARES, TopP
from minfer_models.sampling.weights import Logits, scale_of

_USUAL = {"constraint", "logit_bias", "penalties", "dry", "top_k", "top_p", "min_p", "temperature", "draw", "greedy"}

_ALL = 1 << 62
"""More tokens than there are, as an int64."""


class Usual:
    """Chooses as the samplers one by one. `edits`: it brings the edits itself, and wants the row without them."""

    def __init__(self, chooser: Chooser, edits: bool, penalized: bool, writes: bool) -> None:
        self.edits = edits
        self._chooser, self._penalized, self._writes = chooser, penalized, writes
        self._room = -1

    def choose(self, row: Logits, mask: Mask | None, history: History) -> int:
        """An id; below 0 where it is left to the samplers one by one, which may also say why there is none."""
        if self._writes and not row.flags.writeable:
            return -1
        if self._penalized:
            self._recall(history)
        return self._chooser.choose(row, mask, history.n_generated)

    def _recall(self, history: History) -> None:
        """Tell of the tokens: mostly one more, which native code takes in."""
        new, length = history.new, history.length
        if len(new) == 1 and length <= self._room:
            self._chooser.recall(new.pop(), length)
            return
        history.settle()
        if history.room != self._room:
            self._room = history.room
            self._chooser.follow(history.ids, history.distinct, history.counts, history.n_distinct)
        self._chooser.recall(-1, length)


def usual(
    params: SamplingParams,
    stages: tuple[str, ...],
    narrow: Narrow,
    largest: Largest,
    seed: int,
    bias: LogitBias | None,
    penalized: bool,
) -> Usual | None:
    """What chooses in one call; None where the stages, or what looks at the logits, don't let it."""
    p, greedy = params, "greedy" in stages
    if set(stages) - _USUAL or p.dynatemp_range:
        return None
    if not greedy and narrow.whole and not {"top_p", "min_p"} & set(stages):
        return None
    # DRY comes behind the others and is Python: with it, no edit is native
    edits = "dry" not in stages
    if not edits:
        bias, penalized = None, False
    repeat, presence, frequency = row_penalties(p) if penalized else (1.0, 0.0, 0.0)
    last = 0 if repeat == 1 else int(p.repeat_last_n)
    chooser = largest.chooser(
        k=1 if greedy else narrow.k,
        whole=not greedy and narrow.whole,
        share=SHARES if greedy else TopP(float(p.top_p)).share,
        lowest=MinP(float(p.min_p)).lowest if p.min_p > 0 and not greedy else -math.inf,
        scale=1.0 if greedy else scale_of(p.temperature),
        seed=seed,
        biases=(np.empty(0, np.int64), np.empty(0, np.float32)) if bias is None else (bias.ids, bias.biases),
        last=min(last, _ALL) if last >= 0 else _ALL,
        repeat=repeat,
        presence=presence,
        frequency=frequency,
    )
    return None if chooser is None else Usual(chooser, edits, penalized, bias is not None or penalized)
