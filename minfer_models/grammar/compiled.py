"""A grammar compiled for a vocabulary, and what follows a text through it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from minfer_models.grammar.errors import GrammarError
from minfer_models.grammar.vocabulary import Vocabulary
from minfer_models.sampling.constraint import Mask

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits

_MOST_STATES = 1024


@dataclass(slots=True)
class _State:
    """Where a text stands, by the tokens that led there; the mask once it was asked for."""

    mask: Mask | None = None
    after: dict[int, _State] = field(default_factory=dict)


class CompiledGrammar:
    """A grammar that can bind many generations, from several threads at once.

    Compiled once; `matcher` gives each generation its own place in it for some 20 us. Masks are kept for the states
    that were seen first, so texts that start alike share them.
    """

    def __init__(self, vocabulary: Vocabulary, lark: str, kind: str) -> None:
        """`lark`: the grammar in the engine's notation. Raises GrammarError when the engine refuses it."""
        self.vocabulary = vocabulary
        self.kind = kind
        self.lark = lark
        self._engine = _compiled(vocabulary, lark, kind)
        self._start = _State()
        self._n_states = 1
        self._lock = threading.Lock()

    def matcher(self) -> Matcher:
        """A new place at the grammar's start."""
        with self._lock:
            return Matcher(self, self._engine.deep_copy(), self._start)

    def _next(self, state: _State, token_id: int) -> _State | None:
        """The state behind a token, None when no more are kept."""
        known = state.after.get(token_id)
        if known is not None:
            return known
        with self._lock:
            if self._n_states >= _MOST_STATES:
                return None
            self._n_states += 1
            return state.after.setdefault(token_id, _State())


class Matcher:
    """One text's place in a grammar: a `Constraint` of the sampler that can also be rewound."""

    def __init__(self, grammar: CompiledGrammar, engine: LLMatcher, start: _State) -> None:
        self._grammar = grammar
        self._vocabulary = grammar.vocabulary
        self._engine = engine
        self._states: list[_State | None] = [start]
        self._mask: Mask | None = None
        self._ended = False

    @property
    def complete(self) -> bool:
        """Whether the text so far is one that the grammar describes."""
        return self._engine.is_accepting()

    @property
    def finished(self) -> bool:
        """Whether the text is complete and nothing can be added to it."""
        return self._ended or (self.complete and np.array_equal(self.mask(), self._vocabulary.only_eog))

    def mask(self) -> Mask:
        """The tokens that may come next, those that end the generation only where the text is complete.

        Raises GrammarError when the engine gives up: a step that costs too much.
        """
        if self._ended:
            return self._vocabulary.only_eog
        state = self._states[-1]
        if state is not None and state.mask is not None:
            return state.mask
        if self._mask is None:
            self._mask = self._computed()
        if state is not None:
            state.mask = self._mask
        return self._mask

    def _computed(self) -> Mask:
        mask = np.zeros(self._vocabulary.n_words, np.uint32)
        self._engine.unsafe_compute_mask_ptr(mask.ctypes.data, 4 * -(-self._vocabulary.n_tokens // 32))
        self._check()
        mask.flags.writeable = False
        return mask

    def accept(self, token_id: int) -> None:
        """Go on by a token. Raises GrammarError for one that the mask forbids."""
        self._mask = None
        ends = token_id in self._vocabulary.eog and self.complete
        if ends:
            self._ended = True
        elif self._ended or not self._engine.consume_token(token_id):
            raise GrammarError(f"{self._grammar.kind}: token {token_id} can't follow here{_reason(self._engine)}")
        state = self._states[-1]
        self._states.append(None if state is None or ends else self._grammar._next(state, token_id))

    def rewind(self, n: int) -> None:
        """Undo the last n tokens. Raises GrammarError when there were fewer."""
        if not 0 <= n < len(self._states):
            raise GrammarError(f"{self._grammar.kind}: can't rewind {n} tokens of {len(self._states) - 1}")
        self._mask = None
        consumed = n - 1 if self._ended and n else n
        self._ended = self._ended and not n
        if consumed and not self._engine.rollback(consumed):
            raise GrammarError(f"{self._grammar.kind}: can't rewind {n} tokens{_reason(self._engine)}")
        del self._states[len(self._states) - n :]

    def _check(self) -> None:
        if self._engine.is_error():
            raise GrammarError(f"{self._grammar.kind}: the next token can't be told{_reason(self._engine)}")


def refusal(vocabulary: Vocabulary, lark: str) -> str | None:
    """Why the engine doesn't take a grammar, None when it does."""
    engine = _engine(vocabulary, lark)
    return _reason(engine).removeprefix(": ") if engine.is_error() else None


def _compiled(vocabulary: Vocabulary, lark: str, kind: str) -> LLMatcher:
    engine = _engine(vocabulary, lark)
    if engine.is_error():
        raise GrammarError(f"{kind}{_reason(engine)}")
    return engine


def _engine(vocabulary: Vocabulary, lark: str) -> LLMatcher:
    from llguidance import LLMatcher

    # Every token that fits is allowed, not only the usual ones of a text that is certain.
    text = f'%llguidance {{"no_forcing": true}}\n{lark}'
    return LLMatcher(vocabulary.engine, text, log_level=0, limits=_limits())


def _limits() -> LLParserLimits:
    """What a grammar may cost: some 100 ms to compile and for a step, and 100 MB of lexer states."""
    from llguidance import LLParserLimits

    return LLParserLimits(
        initial_lexer_fuel=5_000_000,
        step_lexer_fuel=2_000_000,
        step_max_items=2_000_000,
        max_lexer_states=50_000,
        max_grammar_size=500_000,
        verbose_errors=False,
    )


def _reason(engine: LLMatcher) -> str:
    """What the engine says, without its state and its listing of the grammar."""
    lines = engine.get_error().partition("<state>")[0].strip().splitlines()
    said = [*lines[:1], *(line for line in lines[1:] if line.startswith("error: "))]
    return f": {' '.join(said)}" if said else ""
