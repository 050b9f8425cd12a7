"""Generating text: tokens chosen one by one, text out as soon as it is certain."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import numpy as np

from minfer_models.engine import ContextError, Engine, EngineError, TokenSequence
from minfer_models.engine.kept import KeptSequence
from minfer_models.engine.sequence import token_array
from minfer_models.sampling import Sampler, SamplingError
from minfer_models.stops import Stops
from minfer_models.tokenizer import Tokenizer

FinishReason = Literal["stop", "length", "interrupted"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts and seconds of one generation. Prefill ends with the first token chosen.

    `cached_tokens` of the prompt were there already, `prefilled_tokens` were computed: all others, unless it was
    interrupted before.
    """

    prompt_tokens: int
    completion_tokens: int
    prefill_seconds: float
    decode_seconds: float
    cached_tokens: int = 0
    prefilled_tokens: int = 0

    @property
    def prefill_rate(self) -> float:
        """Computed prompt tokens per second."""
        return self.prefilled_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens per second behind the first."""
        return max(self.completion_tokens - 1, 0) / self.decode_seconds if self.decode_seconds else 0.0


class Generation:
    """Iterate over it for pieces of text; afterwards `usage`, `finish_reason` and `token_ids` say what happened.

    `finish_reason` is "stop" at an end-of-generation token, where a grammar lets nothing follow, or at a stop string,
    which `stop_string` then is; "length" when `max_tokens` are reached or the context is full; "interrupted" after
    `stop()` or when the iterator was dropped on the way. `seed` is the one in use, also when it was drawn. It runs
    once: a second iteration yields nothing.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        sampler: Sampler,
        max_tokens: int | None,
        stop: Sequence[str] = (),
        kept: KeptSequence | None = None,
    ) -> None:
        """`kept` runs it in a sequence that stays; else its cells are given back when it ends.

        Raises ContextError when the prompt leaves no room for a token, EngineError for no prompt or no tokens.
        """
        if not prompt:
            raise EngineError("the prompt is empty: there is nothing to continue")
        if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
            raise EngineError(f"max_tokens is {max_tokens}, expected a whole number from 1")
        if len(prompt) >= engine.n_ctx:
            raise ContextError(
                f"the prompt's {len(prompt)} tokens exceed the available context size of {engine.n_ctx}, "
                "which needs room for one more"
            )
        self._engine, self._tokenizer, self._prompt, self._sampler = (
            engine,
            tokenizer,
            token_array(prompt).tolist(),
            sampler,
        )
        self._limit = engine.n_ctx - len(prompt)
        self._max_tokens = self._limit if max_tokens is None else min(max_tokens, self._limit)
        self._stops, self._kept = Stops(stop), kept
        self.seed = sampler.seed
        self.token_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._cached = self._prefilled = 0
        self._prefill_seconds = 0.0
        self._decode_seconds = 0.0
        self._started = self._stopping = False

    @property
    def sampler(self) -> Sampler:
        """What chooses the tokens: its settings and stages."""
        return self._sampler

    @property
    def usage(self) -> Usage:
        """Counts and times so far."""
        counts = len(self._prompt), len(self.token_ids)
        return Usage(*counts, self._prefill_seconds, self._decode_seconds, self._cached, self._prefilled)

    @property
    def complete(self) -> bool | None:
        """Whether the text is one that the grammar describes, None without a grammar; cut by a limit it may not be."""
        return getattr(self._sampler.constraint, "complete", None)

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended it."""
        return self._stops.found

    def text(self) -> str:
        """The whole text at once."""
        return "".join(self)

    def stop(self) -> None:
        """End it before the next token, or the next chunk of the prompt; from any thread, or a signal handler."""
        self._stopping = True

    def __iter__(self) -> Iterator[str]:
        return self._run()

    def _run(self) -> Generator[str]:
        if self._started:
            return
        self._started = True
        try:
            with self._sequence() as sequence:
                yield from self._pieces(sequence)
        finally:
            self.finish_reason = self.finish_reason or "interrupted"

    def _sequence(self) -> AbstractContextManager[TokenSequence]:
        room = len(self._prompt) + self._max_tokens
        return TokenSequence(self._engine, room) if self._kept is None else self._kept.using(room)

    def _pieces(self, sequence: TokenSequence) -> Iterator[str]:
        """The text up to a stop string, whole characters only."""
        stream = self._tokenizer.stream(continues=self._prompt != [self._tokenizer.bos])
        for token_id in self._tokens(sequence):
            if piece := self._stops.push(stream.push(token_id)):
                yield piece
            if self.stop_string is not None:
                self.finish_reason = "stop"
                return
        tail = self._stops.push(stream.flush()) + self._stops.flush()
        if tail and self.finish_reason is not None:
            yield tail

    def _tokens(self, sequence: TokenSequence) -> Iterator[int]:
        """The chosen ids, without the end-of-generation token."""
        start = perf_counter()
        token_id = self._prefill(sequence)
        self._prefill_seconds = perf_counter() - start
        while token_id is not None:
            self.token_ids.append(token_id)
            if token_id in self._tokenizer.eog:
                self.finish_reason = "stop"
                return
            yield token_id
            if self._sampler.constraint is not None and self._sampler.constraint.finished:
                self.finish_reason = "stop"
                return
            if len(self.token_ids) >= self._max_tokens:
                self.finish_reason = "length"
                return
            start = perf_counter()
            token_id = None if self._stopping else self._choose(sequence, [token_id])
            self._decode_seconds += perf_counter() - start

    def _prefill(self, sequence: TokenSequence) -> int | None:
        """Compute what the sequence doesn't hold of the prompt and choose the first token; None when stopped."""
        self._cached = sequence.rewind(self._prompt)
        new, chunk = self._prompt[self._cached :], self._engine.chunk
        last = (len(new) - 1) // chunk * chunk
        for at in range(0, last, chunk):
            if self._stopping:
                return None
            sequence.feed(new[at : at + chunk], "none")
            self._prefilled = at + chunk
        if self._stopping:
            return None
        token_id = self._choose(sequence, new[last:])
        self._prefilled = len(new)
        return token_id

    def _choose(self, sequence: TokenSequence, token_ids: list[int]) -> int:
        """Feed tokens and choose the next; SamplingError says the likely cause when the logits aren't finite."""
        # The lock is kept until the token is chosen: another thread's forward would overwrite the logits.
        with self._engine.lock:
            logits = sequence.next_logits(token_ids)
            try:
                return self._sampler.sample(logits)
            except SamplingError as error:
                if np.isfinite(logits).all() or self._engine.options.kv_type != "f16":
                    raise
                raise SamplingError(
                    f"{error}; keys or values beyond 65504 don't fit f16 cells: try kv f32, "
                    "or minfer trace to find the node"
                ) from error
