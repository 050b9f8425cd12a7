"""What a grammar says about the next token: the sampler asks before it looks at the logits."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.uint32]


class Constraint(Protocol):
    """Which tokens may come next, step by step.

    The sampler reads `mask` once before a choice and then tells `accept` what it chose. A constraint that can also
    take tokens back has `rewind(n)`, which undoes the last n accepted ones; without it a Sampler refuses to rewind.
    """

    @property
    def finished(self) -> bool:
        """Whether only an end-of-generation token may follow."""
        ...

    def mask(self) -> Mask | None:
        """The tokens that may come next: bit i % 32 of word i // 32 stands for token i; None lets every token."""
        ...

    def accept(self, token_id: int) -> None:
        """Take the token that was chosen."""
        ...


def mask_words(n: int) -> int:
    """Words of a mask over n tokens."""
    return -(-n // 32)


def allowed(mask: Mask, n: int) -> NDArray[np.bool_]:
    """The first n bits of a mask as bool [n]."""
    return np.unpackbits(mask.view(np.uint8), bitorder="little", count=n).view(np.bool_)
