"""Random numbers of a step, from a counter-based generator: (seed, step) alone decides."""

from __future__ import annotations

import numpy as np

UNIT = 2.0**-53
_DRAWN_AHEAD = 64
_WORDS = 4


class Uniforms:
    """Numbers in [0, 1), up to four a step: the words of Philox4x64 with the seed as key and the step as counter.

    J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._from = 0
        self._ahead: list[list[int]] = []

    def draw(self, step: int) -> float:
        """What chooses the token."""
        return self._of(step)[0] * UNIT

    def draw_bits(self, step: int) -> int:
        """The same in units of 2^-53."""
        return self._of(step)[0]

    def coin(self, step: int) -> float:
        """What says whether XTC acts."""
        return self._of(step)[1] * UNIT

    def _of(self, step: int) -> list[int]:
        at = step - self._from
        if not 0 <= at < len(self._ahead):
            # A generator costs 20 us, so it draws for many steps.
            words = np.random.Philox(key=self._seed, counter=step).random_raw(_WORDS * _DRAWN_AHEAD)
            self._ahead, self._from, at = (words >> 11).reshape(-1, _WORDS).tolist(), step, 0
        return self._ahead[at]
