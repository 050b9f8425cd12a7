"""A grammar that binds only what follows a thinking block: `<think>...</think>` comes first, free of it.

The tags are text here, however the vocabulary cuts them, and the block may be missing. A token that would end the block
and go on with more than blanks isn't allowed, so that what the grammar binds starts with a token of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from minfer_models.grammar.compiled import Matcher
from minfer_models.grammar.errors import GrammarError
from minfer_models.grammar.vocabulary import Vocabulary
from minfer_models.sampling.constraint import Mask

OPEN: Final = b"<think>"
CLOSE: Final = b"</think>"
_BLANK: Final = b" \t\r\n"
_MOST_BLANKS: Final = 4
"""Bytes of whitespace between the block and what the grammar binds; most models write two line breaks."""

Phase = Literal["opening", "thinking", "blanks", "bound"]


def is_open(prompt: str) -> bool:
    """Whether a prompt ends where a thinking block has begun, as the templates of some models do."""
    return prompt.rstrip().endswith(OPEN.decode())


class ThinkingTokens:
    """Which tokens fit where the thinking block is concerned; made once for a vocabulary, when it is needed."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        tags = {i for i in vocabulary.special - vocabulary.eog if vocabulary.tokens[i] in (OPEN, CLOSE)}
        barred = vocabulary.special - tags
        self._usable = [i for i, data in enumerate(vocabulary.tokens) if data and i not in barred]
        self._masks: dict[tuple[str, int], Mask] = {}

    def bytes_of(self, token_id: int) -> bytes:
        """What the token adds to the text."""
        return self._vocabulary.tokens[token_id]

    def opening(self, matched: int) -> Mask:
        """Tokens that go on with the opening tag, of which `matched` bytes are there."""
        return self._mask("opening", matched)

    def thinking(self, matched: int) -> Mask:
        """Tokens within the block, whose text ends in `matched` bytes of the closing tag."""
        return self._mask("thinking", matched)

    def blanks(self, left: int) -> Mask:
        """Tokens that are at most `left` bytes of whitespace."""
        return self._mask("blanks", left)

    def _mask(self, phase: str, n: int) -> Mask:
        known = self._masks.get((phase, n))
        if known is None:
            fits = {"opening": _opens, "thinking": _thinks, "blanks": _is_blank}[phase]
            tokens = self._vocabulary.tokens
            known = self._masks[phase, n] = self._vocabulary.mask(i for i in self._usable if fits(tokens[i], n))
        return known


def _opens(data: bytes, matched: int) -> bool:
    rest = OPEN[matched:]
    return rest.startswith(data) or (data.startswith(rest) and _thinks(data[len(rest) :], 0))


def _thinks(data: bytes, matched: int) -> bool:
    if b">" not in data:
        return True
    _, rest = close_tag(data, matched)
    return rest is None or _is_blank(rest, _MOST_BLANKS)


def _is_blank(data: bytes, left: int) -> bool:
    return len(data) <= left and not data.strip(_BLANK)


def close_tag(data: bytes, matched: int) -> tuple[int, bytes | None]:
    """Reads on where `matched` bytes of the closing tag stand: how many do now, and what follows the whole tag."""
    text = CLOSE[:matched] + data
    found = text.find(CLOSE)
    if found >= 0:
        return 0, text[found + len(CLOSE) :]
    longest = min(len(text), len(CLOSE) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(CLOSE[:n])), 0), None


@dataclass(frozen=True, slots=True)
class _Place:
    """`n`: bytes of the tag that are there, or blanks that are left; `bound`: whether the grammar is still followed."""

    phase: Phase
    n: int = 0
    bound: bool = False


class AfterThinking:
    """A `Constraint`: nothing but a thinking block, if there is one, and then what the matcher allows."""

    def __init__(self, matcher: Matcher, tokens: ThinkingTokens, opened: bool = False) -> None:
        """`opened`: the block has begun in the prompt. Then it has to end; else it may be missing."""
        self._matcher = matcher
        self._tokens = tokens
        self._places = [_Place("thinking") if opened else _Place("opening", 0, True)]
        self._fed: list[bool] = []

    @property
    def complete(self) -> bool:
        """Whether the text behind the block is one that the grammar describes."""
        return self._place.phase != "thinking" and self._place.bound and self._matcher.complete

    @property
    def finished(self) -> bool:
        """Whether the text is complete and nothing can be added to it."""
        return self._place.phase == "bound" and self._matcher.finished

    @property
    def _place(self) -> _Place:
        return self._places[-1]

    def mask(self) -> Mask:
        """The tokens that may come next."""
        place = self._place
        if place.phase == "thinking":
            return self._tokens.thinking(place.n)
        if place.phase == "bound":
            return self._matcher.mask()
        free = self._tokens.opening(place.n) if place.phase == "opening" else self._tokens.blanks(place.n)
        return free | self._matcher.mask() if place.bound else free

    def accept(self, token_id: int) -> None:
        """Go on by a token. Raises GrammarError for one that the mask forbids."""
        place = self._place
        if not _allows(self.mask(), token_id):
            raise GrammarError(f"token {token_id} can't follow here")
        fed = place.bound and _allows(self._matcher.mask(), token_id)
        if fed:
            self._matcher.accept(token_id)
        self._places.append(self._next(place, self._tokens.bytes_of(token_id), fed))
        self._fed.append(fed)

    def _next(self, place: _Place, data: bytes, fed: bool) -> _Place:
        if place.phase == "opening":
            return _opened(place, data, fed)
        if place.phase == "thinking":
            return _thought(place.n, data)
        return _Place("bound", 0, True) if fed else replace(place, n=place.n - len(data))

    def rewind(self, n: int) -> None:
        """Undo the last n tokens. Raises GrammarError when there were fewer."""
        if not 0 <= n <= len(self._fed):
            raise GrammarError(f"can't rewind {n} tokens of {len(self._fed)}")
        at = len(self._fed) - n
        self._matcher.rewind(sum(self._fed[at:]))
        del self._fed[at:], self._places[at + 1 :]


def _opened(place: _Place, data: bytes, fed: bool) -> _Place:
    rest = OPEN[place.n :]
    if not rest.startswith(data) and not data.startswith(rest):
        return _Place("bound", 0, True)
    if len(data) < len(rest):
        return _Place("opening", place.n + len(data), fed)
    return _thought(0, data[len(rest) :])


def _thought(matched: int, data: bytes) -> _Place:
    matched, rest = close_tag(data, matched)
    return _Place("thinking", matched) if rest is None else _Place("blanks", _MOST_BLANKS - len(rest), True)


def _allows(mask: Mask, token_id: int) -> bool:
    return bool(mask[token_id >> 5] >> (token_id & 31) & 1)
