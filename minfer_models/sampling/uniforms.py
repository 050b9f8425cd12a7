"""Random numbers of a step, from a counter-based generator: (seed, step) alone decides."""

from __future__ import annotations

import numpy as np

_DRAWN_AHEAD = 64
_WORDS = 4


class Uniforms:
    """Numbers in [0, 1), up to four a step: the words of Philox4x64 with the seed as key and the step as counter.

    J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._from = 0
        self._ahead: list[list[float]] = []

    def draw(self, step: int) -> float:
        """What chooses the token."""
        return self._of(step)[0]

    def coin(self, step: int) -> float:
        """What says whether XTC acts."""
        return self._of(step)[1]

    def _of(self, step: int) -> list[float]:
        at = step - self._from
        if not 0 <= at < len(self._ahead):
            # A generator costs 20 us, so it draws for many steps.
            words = np.random.Philox(key=self._seed, counter=step).random_raw(_WORDS * _DRAWN_AHEAD)
            self._ahead, self._from, at = ((words >> 11) * 2.0**-53).reshape(-1, _WORDS).tolist(), step, 0
        return self._ahead[at]
