"""Choosing tokens, one a step. A choice depends on the seed, the step, the row and the sequence's own tokens only."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

import numpy as np

from minfer_models.sampling.breakers import Breakers
from minfer_models.sampling.candidates import Floats, Ids
from minfer_models.sampling.constraint import Constraint, Mask, mask_words
from minfer_models.sampling.dry import Dry
from minfer_models.sampling.edits import Edits
from minfer_models.sampling.errors import SamplingError
from minfer_models.sampling.history import History
from minfer_models.sampling.largest import Largest, NumpyLargest
from minfer_models.sampling.logit_bias import LogitBias
from minfer_models.sampling.narrow import MOST_NATIVE, Narrow
from minfer_models.sampling.one_by_one import OneByOne
from minfer_models.sampling.params import SamplingParams
from minfer_models.sampling.penalties import Penalties, row_penalties
from minfer_models.sampling.pipeline import active
from minfer_models.sampling.refusal import NothingToChooseError, not_finite, why_none
from minfer_models.sampling.uniforms import Uniforms
from minfer_models.sampling.usual import usual
from minfer_models.sampling.weights import Logits


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
        self._shape = (n_vocab,)
        narrow = Narrow(params, self.decodable)
        self._largest = self._made_largest(largest, narrow)
        bias, penalties, dry = self._made_edits(bytes_of)
        self._edits = Edits([edit for edit in (bias, penalties, dry) if edit is not None])
        self._one_by_one = OneByOne(params, self.stages, self.decodable, self._largest, narrow, Uniforms(self.seed))
        self._mirostat = self._one_by_one.mirostat
        self._usual = usual(params, self.stages, narrow, self._largest, self.seed, bias, penalties is not None)
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
        if logits.shape != self._shape:
            raise self._misshapen(logits)
        mask = None if self.constraint is None else self._mask(self.constraint)
        if self._usual is not None and self._usual.edits:
            chosen = self._usual.choose(logits, mask, self.history)
            if chosen >= 0:
                self.accept(chosen)
                return chosen
        chosen, below, bits = self._chosen_one_by_one(logits, mask)
        self.accept(chosen)
        if self._mirostat is not None:
            self._mirostat.learn(below, bits)
        return chosen

    def distribution(self, logits: Logits) -> tuple[Ids, Floats]:
        """The ids that can be chosen from logits [n_vocab] at this step, ascending, and their probabilities.

        Raises SamplingError as `sample`.
        """
        if logits.shape != self._shape:
            raise self._misshapen(logits)
        mask = None if self.constraint is None else self._mask(self.constraint)
        wrong: str | None = None
        with self._edits.applied(logits, self.history) as edited:
            row = self._masked(edited, mask)
            try:
                return self._one_by_one.distribution(row, self.step)
            except NothingToChooseError:
                wrong = not_finite(row[: self.decodable])
        raise self._refusal(wrong, logits)

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

    def _chosen_one_by_one(self, logits: Logits, mask: Mask | None) -> tuple[int, float, float]:
        """An id, by the samplers one by one; with mirostat, what it learns from."""
        wrong: str | None = None
        with self._edits.applied(logits, self.history) as edited:
            if self._usual is not None and not self._usual.edits:
                chosen = self._usual.choose(edited, mask, self.history)
                if chosen >= 0:
                    return chosen, 0.0, 0.0
            row = self._masked(edited, mask)
            try:
                return self._one_by_one.choose(row, self.step)
            except NothingToChooseError:
                wrong = not_finite(row[: self.decodable])
        raise self._refusal(wrong, logits)

    def _made_largest(self, largest: Callable[[int, int], Largest | None], narrow: Narrow) -> Largest:
        k = narrow.k
        if "greedy" in self.stages:
            k = 1
        elif "mirostat" in self.stages:
            k = min(MOST_NATIVE, self.decodable)
        return largest(self.decodable, k) or NumpyLargest(self.decodable, k)

    def _made_edits(
        self, bytes_of: Callable[[int], bytes] | None
    ) -> tuple[LogitBias | None, Penalties | None, Dry | None]:
        """What changes logits, in the pipeline's order, where it does."""
        p, bias, penalties, dry = self.params, None, None, None
        self._breakers = None
        if "logit_bias" in self.stages:
            bias = LogitBias(p.logit_bias, self.n_vocab, self.decodable)
        if "penalties" in self.stages:
            penalties = Penalties(p, self._largest.penalties(*row_penalties(p)))
        if "dry" in self.stages:
            texts = p.dry_sequence_breakers
            if bytes_of is None and texts:
                raise SamplingError("dry_sequence_breakers need a vocabulary: the sampler was given none")
            self._breakers = Breakers(texts, bytes_of or (lambda _token_id: b""))
            dry = Dry(p, self._breakers, self.decodable)
        return bias, penalties, dry

    def _mask(self, constraint: Constraint) -> Mask | None:
        """What the constraint lets through."""
        mask = constraint.mask()
        if mask is not None and (getattr(mask, "dtype", None) != np.uint32 or mask.ndim != 1):
            kind = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, np.ndarray) else type(mask).__name__
            raise SamplingError(
                f"the constraint's mask is {kind}, not uint32 words whose bit i % 32 stands for token i"
            )
        if mask is not None and len(mask) < mask_words(self.decodable):
            raise SamplingError(f"the mask has {len(mask)} words, fewer than {self.decodable} tokens take")
        return mask

    def _masked(self, row: Logits, mask: Mask | None) -> Logits:
        """The row, or a copy with -inf where the mask has no bit."""
        if mask is None:
            return row
        if self._work is None:
            self._work = np.empty(self.decodable, np.float32)
        self._largest.masked(row, mask, self._work)
        return self._work

    def _misshapen(self, logits: Logits) -> SamplingError:
        return SamplingError(f"logits have shape {logits.shape}, not ({self.n_vocab},)")

    def _refusal(self, wrong: str | None, logits: Logits) -> SamplingError:
        """Why nothing can be chosen: from what is wrong with the row behind the edits, and with the logits."""
        before = not_finite(logits[: self.decodable])
        why = why_none(wrong, before, self.constraint is not None)
        return SamplingError(f"no token can be chosen at step {self.step}: {why}")
