"""The samplers that are measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minfer_models.sampling.constraint import mask_words

ALL = {"top_k": 0}
SEED = 0


@dataclass(frozen=True, slots=True)
class Case:
    """A sampler: what differs from the default's settings; `share` of the tokens that a constraint lets through."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    share: float | None = None


CASES = (
    Case("greedy", {"temperature": 0.0}),
    Case("default"),
    Case("penalties", {"repeat_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.5}),
    Case("penalties over all of the text", {"repeat_penalty": 1.1, "frequency_penalty": 0.5, "repeat_last_n": -1}),
    Case("DRY", {"dry_multiplier": 0.8}),
    Case("logit bias", {"logit_bias": {7: -5.0, 11: 1.0}}),
    Case("a constraint, most tokens", share=0.9),
    Case("a constraint, few tokens", share=0.001),
    Case("a constraint, greedy", {"temperature": 0.0}, share=0.9),
    Case("XTC", {"xtc_probability": 0.5}),
    Case("dynamic temperature", {"dynatemp_range": 0.5}),
    Case("typical", {"typical_p": 0.9}),
    Case("top-k off", ALL),
    Case("top-k off, min-p alone", {**ALL, "top_p": 1.0}),
    Case("top-k off, top-p alone", {**ALL, "min_p": 0.0}),
    Case("temperature alone", {**ALL, "top_p": 1.0, "min_p": 0.0}),
    Case("top-n-sigma alone", {**ALL, "top_p": 1.0, "min_p": 0.0, "top_n_sigma": 1.0}),
    Case("top-k off, typical", {**ALL, "typical_p": 0.9}),
    Case("mirostat 1", {"mirostat": 1}),
    Case("mirostat 2", {"mirostat": 2}),
)


class Share:
    """A constraint whose mask has a share of the tokens, the first among them."""

    finished = False

    def __init__(self, n: int, share: float) -> None:
        bits = np.random.default_rng(SEED).random(32 * mask_words(n)) < share
        bits[0] = True
        self._mask = np.packbits(bits, bitorder="little").view(np.uint32)

    def mask(self) -> NDArray[np.uint32] | None:
        """Always the same."""
        return self._mask

    def accept(self, token_id: int) -> None:
        """Nothing changes."""

    def rewind(self, n: int) -> None:
        """Nothing changes back."""
