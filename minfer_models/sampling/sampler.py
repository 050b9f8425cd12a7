"""Choosing tokens, one a step. A choice depends on the seed, the step, the row and the sequence's own tokens only."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from minfer_models.sampling.breakers import Breakers
from minfer_models.sampling.candidates import Candidates, Floats, Ids
from minfer_models.sampling.constraint import Constraint, Mask, mask_words
from minfer_models.sampling.dry import Dry
from minfer_models.sampling.errors import SamplingError
from minfer_models.sampling.history import History
from minfer_models.sampling.largest import CHUNK, Largest, NumpyLargest
from minfer_models.sampling.logit_bias import LogitBias
from minfer_models.sampling.min_p import MinP
from minfer_models.sampling.mirostat import Mirostat
from minfer_models.sampling.narrow import MOST_NATIVE, Narrow
from minfer_models.sampling.params import SamplingParams
from minfer_models.sampling.penalties import Penalties, row_penalties
from minfer_models.sampling.pipeline import active
from minfer_models.sampling.temperature import Temperature
from minfer_models.sampling.top_p import TopP
from minfer_models.sampling.typical import Typical
from minfer_models.sampling.uniforms import Uniforms
from minfer_models.sampling.weights import Logits, scale_of, weights
from minfer_models.sampling.xtc import Xtc

MOST_CHOSEN = 128
"""Beyond, sorting the candidates by insertion costs more than numpy does."""


_NONE = "every logit is -inf"
_EDITS = ("constraint", "logit_bias", "penalties", "dry")


class Edit(Protocol):
    """Changes logits of a row in place, and changes them back."""

    def apply(self, row: Logits, history: History) -> None:
        """Change them."""
        ...

    def undo(self, row: Logits) -> None:
        """Change them back."""
        ...


Filter = Callable[[Candidates, int], Candidates]


class Sampler:
    """Chooses one token a step from rows of n_vocab logits, never an id of `decodable` or above.

    seed: the seed in use, also when it was drawn. stages: the names of the pipeline's stages in use, in order.
    """

    def __init__(
        self,
        params: SamplingParams,
        n_vocab: int,
        decodable: int | None = None,
        largest: Callable[[int, int], Largest | None] = lambda _n, _k: None,
        *,
        prompt: Iterable[int] = (),
        constraint: Constraint | None = None,
        bytes_of: Callable[[int], bytes] | None = None,
    ) -> None:
        """decodable: ids that stand for text, where the logits are wider than the vocabulary; None for all.

        largest: makes what looks at the first n logits natively for the k largest, None where that can't be. The
        choices are the same. prompt: the tokens before the first choice. constraint: says before every choice which
        tokens may come, and is told what came. bytes_of: what a token spells, to find the breakers of DRY.
        Raises SamplingError when no id is decodable, for a bias of an id that isn't there, for DRY without `bytes_of`.
        """
        self.params = params
        self.n_vocab = n_vocab
        self.decodable = n_vocab if decodable is None else min(decodable, n_vocab)
        if self.decodable < 1:
            raise SamplingError(f"no token can be chosen: {self.decodable} of {n_vocab} ids are decodable")
        self.seed = secrets.randbits(32) if params.seed is None or params.seed == -1 else int(params.seed)
        self.constraint = constraint
        self.stages = active(params, constraint is not None)
        self.history = History(prompt)
        self._uniforms = Uniforms(self.seed)
        self._breakers = self._found_breakers(bytes_of) if "dry" in self.stages else None
        self._filters = self._made_filters()
        self._greedy = "greedy" in self.stages
        self._narrow = Narrow(params, self.decodable)
        self._mirostat = Mirostat(params, self.decodable) if "mirostat" in self.stages else None
        # nothing but a fixed temperature: no list of candidates is made
        self._scale = None if self._truncated() else scale_of(params.temperature)
        self._native = self._choice()
        k = 1 if self._greedy else self._narrow.k
        if self._mirostat is not None:
            k = min(MOST_NATIVE, self.decodable)
        self._largest = largest(self.decodable, k) or NumpyLargest(self.decodable, k)
        self._edits = self._made_edits()
        self._work: Logits | None = None

    @property
    def step(self) -> int:
        """How many tokens were chosen."""
        return self.history.n_generated

    @property
    def tokens(self) -> list[int]:
        """The tokens chosen so far."""
        return self.history.generated().tolist()

    def sample(self, logits: Logits) -> int:
        """The id chosen from logits [n_vocab] at this step, which then advances.

        Raises SamplingError, naming the step, for another shape, for NaN, +inf or only -inf among the decodable logits,
        and when the constraint or the biases leave no token.
        """
        row, mask = self._edited(logits)
        try:
            chosen, below, bits = self._choose(row, logits, mask)
        finally:
            self._put_back(row, logits)
        self.accept(chosen)
        if self._mirostat is not None:
            self._mirostat.learn(below, bits)
        return chosen

    def distribution(self, logits: Logits) -> tuple[Ids, Floats]:
        """The ids that can be chosen from logits [n_vocab] at this step, ascending, and their probabilities.

        Raises SamplingError as `sample`.
        """
        row, mask = self._edited(logits)
        try:
            return self._distribution(self._masked(row, mask), logits)
        finally:
            self._put_back(row, logits)

    def accept(self, token_id: int) -> None:
        """Take a token as chosen at this step, which then advances."""
        if self.constraint is not None:
            self.constraint.accept(token_id)
        self.history.append(token_id)
        if self._mirostat is not None:
            self._mirostat.step()

    def rewind(self, n: int) -> None:
        """Take the last n chosen tokens back: the steps from there choose as they did, given the same rows.

        Raises SamplingError when fewer were chosen or a constraint can't be rewound.
        """
        if not 0 <= n <= self.step:
            raise SamplingError(f"{n} tokens can't be taken back: {self.step} were chosen")
        if self.constraint is not None and n:
            rewind = getattr(self.constraint, "rewind", None)
            if rewind is None:
                raise SamplingError(f"{n} tokens can't be taken back: the constraint can't be rewound")
            rewind(n)
        self.history.rewind(n)
        if self._mirostat is not None:
            self._mirostat.rewind(n)
        if self._breakers is not None:
            self._breakers.rewind(self.history.length)

    def _found_breakers(self, bytes_of: Callable[[int], bytes] | None) -> Breakers:
        texts = self.params.dry_sequence_breakers
        if bytes_of is None and texts:
            raise SamplingError("dry_sequence_breakers need a vocabulary: the sampler was given none")
        return Breakers(texts, bytes_of or (lambda _token_id: b""))

    def _made_edits(self) -> list[Edit]:
        """What changes logits, in the pipeline's order."""
        p = self.params
        makers: dict[str, Callable[[], Edit]] = {
            "logit_bias": lambda: LogitBias(p.logit_bias, self.n_vocab, self.decodable),
            "penalties": lambda: Penalties(p, self._largest.penalties(*row_penalties(p))),
            "dry": lambda: Dry(p, self._breakers or self._found_breakers(None), self.decodable),
        }
        return [makers[name]() for name in self.stages if name in makers]

    def _made_filters(self) -> list[Filter]:
        """What drops candidates and divides their logits, in the pipeline's order."""
        p = self.params
        makers: dict[str, Callable[[], Filter]] = {
            "typical": lambda: Typical(float(p.typical_p)),
            "top_p": lambda: TopP(float(p.top_p)),
            "min_p": lambda: MinP(float(p.min_p)),
            "xtc": lambda: Xtc(float(p.xtc_probability), float(p.xtc_threshold), self._uniforms),
            "temperature": lambda: Temperature(
                float(p.temperature), float(p.dynatemp_range), float(p.dynatemp_exponent)
            ),
        }
        return [makers[name]() for name in self.stages if name in makers]

    def _truncated(self) -> bool:
        if self.params.temperature == 0 or self.params.mirostat or self.params.dynatemp_range:
            return True
        named = {"top_n_sigma", "typical", "top_p", "min_p", "xtc"} & set(self.stages)
        return bool(named) or 0 < self.params.top_k < self.decodable

    def _edited(self, logits: Logits) -> tuple[Logits, Mask | None]:
        """The logits with the edits in them, and the mask of what may be chosen from them.

        It is the caller's row: a copy of a wide one costs more than all the rest of a choice, so edits are undone.
        """
        if logits.shape != (self.n_vocab,):
            raise SamplingError(f"logits have shape {logits.shape}, not ({self.n_vocab},)")
        mask = None if self.constraint is None else self.constraint.mask()
        if mask is not None and len(mask) < mask_words(self.decodable):
            raise SamplingError(f"the mask has {len(mask)} words, fewer than {self.decodable} tokens take")
        if not self._edits:
            return logits, mask
        row = logits if logits.flags.writeable else logits.copy()
        done: list[Edit] = []
        try:
            for edit in self._edits:
                edit.apply(row, self.history)
                done.append(edit)
        except BaseException:
            for edit in reversed(done):
                edit.undo(row)
            raise
        return row, mask

    def _masked(self, row: Logits, mask: Mask | None) -> Logits:
        """The row, or a copy with -inf where the mask has no bit."""
        if mask is None:
            return row
        if self._work is None:
            self._work = np.empty(self.decodable, np.float32)
        self._largest.masked(row, mask, self._work)
        return self._work

    def _best(self, row: Logits, logits: Logits, mask: Mask | None = None) -> int:
        """The most likely id of a row that was made from the logits."""
        best = self._largest.argmax(row, mask)
        if best < 0:
            raise self._refusal(self._masked(row, mask), logits)
        return best

    def _filtered(self, row: Logits, logits: Logits) -> Candidates:
        candidates = self._narrow(row, self._largest)
        if candidates is None:
            raise self._refusal(row, logits)
        for keep in self._filters:
            candidates = keep(candidates, self.step)
        return candidates

    def _drawn(self, found: Floats) -> int:
        """The index that the step's number falls on, by weight."""
        bound = found.cumsum()
        return int(bound.searchsorted(self._uniforms.draw(self.step) * bound[-1], side="right"))

    def _draw_wide(self, row: Logits, logits: Logits, scale: float) -> int:
        """A token of the whole row: first its chunk by the chunks' masses, then the token."""
        top = float(row[self._best(row, logits)])
        bound = self._largest.masses(row, top, scale).cumsum(dtype=np.float64)
        goal = self._uniforms.draw(self.step) * bound[-1]
        chunk = int(bound.searchsorted(goal, side="right"))
        start = chunk * CHUNK
        before = bound[chunk - 1] if chunk else 0.0
        inside = weights(row[start : min(start + CHUNK, self.decodable)], top, scale).cumsum(dtype=np.float64)
        # the chunk's mass is a float32: its share is carried over to the exact sum
        share = (goal - before) / (bound[chunk] - before)
        at = int(inside.searchsorted(share * inside[-1], side="right"))
        return start + min(at, int(inside.searchsorted(inside[-1])))

    def _choose(self, row: Logits, logits: Logits, mask: Mask | None) -> tuple[int, float, float]:
        """An id; with mirostat, what it learns from."""
        if self._greedy:
            return self._best(row, logits, mask), 0.0, 0.0
        if self._native is not None:
            chosen = self._largest.choose(row, *self._native, self._uniforms.draw_bits(self.step), mask)
            if chosen == -1:
                raise self._refusal(self._masked(row, mask), logits)
            if chosen >= 0:
                return chosen, 0.0, 0.0
        row = self._masked(row, mask)
        if self._mirostat is not None:
            candidates, bits = self._mirostat.cut(row, self._largest, self._best(row, logits))
            at = self._drawn(candidates.weights())
            return int(candidates.ids[at]), float(candidates.below[at]), bits
        if self._scale is not None:
            return self._draw_wide(row, logits, self._scale), 0.0, 0.0
        candidates = self._filtered(row, logits)
        return int(candidates.ids[self._drawn(candidates.weights())]), 0.0, 0.0

    def _distribution(self, row: Logits, logits: Logits) -> tuple[Ids, Floats]:
        if self._greedy:
            return np.array([self._best(row, logits)], dtype=np.intp), np.ones(1)
        if self._scale is not None:
            top = float(row[self._best(row, logits)])
            found = weights(row[: self.decodable], top, self._scale).astype(np.float64)
            ids = np.flatnonzero(row[: self.decodable] > -np.inf)
            return ids, found[ids] / found.sum()
        if self._mirostat is not None:
            candidates, _ = self._mirostat.cut(row, self._largest, self._best(row, logits))
        else:
            candidates = self._filtered(row, logits)
        found = candidates.weights()
        return candidates.ids.copy(), found / found.sum()

    def _put_back(self, row: Logits, logits: Logits) -> None:
        """Undo the edits of the caller's own row; once more does no harm."""
        if row is logits:
            for edit in reversed(self._edits):
                edit.undo(row)

    def _choice(self) -> tuple[bool, int, float, float] | None:
        """Whole, share, lowest and scale, where the usual truncations are all that there is."""
        p, others = self.params, set(self.stages) - {*_EDITS, "top_k", "top_p", "min_p", "temperature", "draw"}
        whole = self._narrow.whole
        if others or p.dynatemp_range or self._scale is not None or not (whole or self._narrow.k <= MOST_CHOSEN):
            return None
        lowest = MinP(float(p.min_p)).lowest if p.min_p > 0 else -math.inf
        return whole, TopP(float(p.top_p)).share, lowest, scale_of(p.temperature)

    def _refusal(self, row: Logits, logits: Logits) -> SamplingError:
        """Why nothing can be chosen from a row that was made from the logits."""
        now = _not_finite(row[: self.decodable])
        for edit in reversed(self._edits):
            edit.undo(logits if logits.flags.writeable else row)
        why = _not_finite(logits[: self.decodable])
        if why is None and now == _NONE:
            why = "logit_bias leaves none" if self.constraint is None else "the constraint allows none that has a logit"
        why = why or f"{now} behind the penalties"
        return SamplingError(f"no token can be chosen at step {self.step}: {why}")


def _not_finite(row: Logits) -> str | None:
    """What is wrong with a row, if something is."""
    best = int(np.argmax(row))  # the first NaN, if there is one: numpy orders NaN above all
    top = float(row[best])
    if math.isfinite(top):
        return None
    return _NONE if top == -math.inf else f"the logit of id {best} is {top}"
