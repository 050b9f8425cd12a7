"""The automaton of a regular expression over characters: its positions, after Glushkov (1961)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from minfer_models.grammar.gbnf.charset import Ranges, both, first_bytes
from minfer_models.grammar.gbnf.lookahead import union
from minfer_models.grammar.gbnf.syntax import Chars, Choice, Literal, Node, Reference, Repeat, Sequence

_MOST_POSITIONS = 200_000
_MOST_EDGES = 200_000
_MOST_PAIRS = 200_000


class TooLargeError(Exception):
    """The automaton isn't worth building: the caller takes the expression apart instead."""


@dataclass(frozen=True, slots=True)
class _Part:
    nullable: bool
    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass(slots=True)
class Positions:
    """`chars` of each position, those that a text `first` starts with and may end at (`last`), and what follows each.

    A bounded repetition counts as an unbounded one, so the automaton reads what the expression matches and maybe more:
    what it rules out is ruled out.
    """

    chars: list[Ranges] = field(default_factory=list)
    follow: list[list[int]] = field(default_factory=list)
    next_bytes: list[int] = field(default_factory=list)
    first: tuple[int, ...] = ()
    last: frozenset[int] = frozenset()
    first_bytes: int = 0
    nullable: bool = False

    @classmethod
    def of(cls, node: Node, body: Callable[[str], Node]) -> Positions:
        """The positions of a node whose references `body` resolves. Raises TooLargeError."""
        made = cls()
        whole = made._part(node, body)
        made.first, made.last, made.nullable = whole.first, frozenset(whole.last), whole.nullable
        starts = [first_bytes(chars) for chars in made.chars]
        made.next_bytes = [union(starts[after] for after in follow) for follow in made.follow]
        made.first_bytes = union(starts[at] for at in made.first)
        return made

    def _part(self, node: Node, body: Callable[[str], Node]) -> _Part:  # noqa: PLR0911 (one for each kind of node)
        match node:
            case Chars(ranges):
                return self._sequence([self._one(ranges)])
            case Literal(text):
                return self._sequence([self._one(((ord(char), ord(char)),)) for char in text])
            case Sequence(items):
                return self._sequence([self._part(item, body) for item in items])
            case Choice(options):
                parts = [self._part(option, body) for option in options]
                first = tuple(at for part in parts for at in part.first)
                last = tuple(at for part in parts for at in part.last)
                return _Part(any(part.nullable for part in parts), first, last)
            case Repeat(item, least, most):
                part = self._part(item, body)
                if most == 0:
                    return _Part(True, (), ())
                if most != 1:
                    self._link(part.last, part.first)
                return _Part(part.nullable or least == 0, part.first, part.last)
            case Reference(name):
                return self._part(body(name), body)
            case _:
                raise AssertionError(f"{node} has no characters")

    def _one(self, ranges: Ranges) -> _Part:
        if len(self.chars) >= _MOST_POSITIONS:
            raise TooLargeError
        self.chars.append(ranges)
        self.follow.append([])
        at = (len(self.chars) - 1,)
        return _Part(False, at, at)

    def _sequence(self, parts: list[_Part]) -> _Part:
        whole = _Part(True, (), ())
        for part in parts:
            self._link(whole.last, part.first)
            first = whole.first + part.first if whole.nullable else whole.first
            last = whole.last + part.last if part.nullable else part.last
            whole = _Part(whole.nullable and part.nullable, first, last)
        return whole

    def _link(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        if len(before) * len(after) > _MOST_EDGES:
            raise TooLargeError
        for at in before:
            known = self.follow[at]
            self.follow[at] = list(dict.fromkeys([*known, *after])) if known else list(after)


def swallows(longer: Positions, shorter: Positions, after: int) -> bool:
    """Whether `longer` may read on where a text of `shorter` ends and what comes next starts with a byte of `after`.

    A lexer that takes the longest match, reading both at once, would then miss the shorter one. Raises TooLargeError.
    """
    return any(end in shorter.last and longer.next_bytes[at] & after for at, end in _reached(longer, shorter))


def share(left: Positions, right: Positions) -> bool:
    """Whether both match one text. Raises TooLargeError."""
    return any(at in left.last and end in right.last for at, end in _reached(left, right))


def _reached(left: Positions, right: Positions) -> Iterator[tuple[int, int]]:
    """The positions where the two stand after reading the same text, for every text."""
    seen: set[tuple[int, int]] = set()
    waiting = list(_shared(left, right, left.first, right.first, seen))
    while waiting:
        at, end = waiting.pop()
        yield at, end
        waiting += _shared(left, right, left.follow[at], right.follow[end], seen)
        if len(seen) > _MOST_PAIRS:
            raise TooLargeError


def _shared(
    left: Positions,
    right: Positions,
    lefts: list[int] | tuple[int, ...],
    rights: list[int] | tuple[int, ...],
    seen: set[tuple[int, int]],
) -> Iterator[tuple[int, int]]:
    for i in lefts:
        for j in rights:
            if (i, j) not in seen and both(left.chars[i], right.chars[j]):
                seen.add((i, j))
                yield i, j
