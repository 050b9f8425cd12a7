"""Which lexemes may follow one, and which may start at the same place: FIRST and FOLLOW of the rules, pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Items
from typing import Any

from minfer_models.grammar.gbnf.syntax import Choice, Lexeme, Node, Reference, Repeat, Sequence, Token, walk

Terminal = Lexeme | Token


class Lookahead:
    """Sets of terminals are bits of a number: bit i stands for `terminals[i]`."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        """`rules`: bodies by name, the root first."""
        found = (node for body in rules.values() for node in walk(body))
        self.terminals: list[Terminal] = list(dict.fromkeys(node for node in found if isinstance(node, Terminal)))
        self._bit: dict[Node, int] = {terminal: 1 << i for i, terminal in enumerate(self.terminals)}
        self._first: dict[str, tuple[int, bool]] = {}
        self._after_rule: dict[str, int] = {}
        self._after: dict[int, int] = {}
        self._changed = True
        self._repeat(self._note_first, rules)
        self._changed = True
        self._repeat(lambda name, body: self._pass_on(body, self._after_rule.get(name, 0)), rules)
        self.follow = [self._after.get(1 << i, 0) for i in range(len(self.terminals))]
        self.root_first = self._first[next(iter(rules))][0]

    def together(self, share: Callable[[int, int], bool]) -> list[int]:
        """For each terminal, those that may start where it does.

        Those that root starts with do; and what follows two that do, if `share` says that both match one text.
        """
        found = [0] * len(self.terminals)
        waiting = [(self.root_first, self.root_first)]
        done: set[tuple[int, int]] = set()
        while waiting:
            left, right = waiting.pop()
            for i in bits(left):
                for j in bits(right & ~found[i]):
                    found[i] |= 1 << j
                    found[j] |= 1 << i
                    pair = (self.follow[i], self.follow[j])
                    if pair not in done and (i == j or share(i, j)):
                        done.add(pair)
                        waiting.append(pair)
        return found

    def _repeat(self, step: Callable[[str, Node], None], rules: Mapping[str, Node]) -> None:
        while self._changed:
            self._changed = False
            for name, body in rules.items():
                step(name, body)

    def _note_first(self, name: str, body: Node) -> None:
        now = self._start(body)
        if self._first.get(name) != now:
            self._first[name] = now
            self._changed = True

    def _start(self, node: Node) -> tuple[int, bool]:
        """The terminals that it starts with, and whether it may be empty."""
        match node:
            case Lexeme() | Token():
                return self._bit[node], False
            case Reference(name):
                return self._first.get(name, (0, False))
            case Sequence(items):
                first = 0
                for item in items:
                    more, empty = self._start(item)
                    first |= more
                    if not empty:
                        return first, False
                return first, True
            case Choice(options):
                starts = [self._start(option) for option in options]
                return union(first for first, _ in starts), any(empty for _, empty in starts)
            case Repeat(item, least, most):
                first, empty = self._start(item)
                return (0, True) if most == 0 else (first, empty or least == 0)
            case _:
                raise AssertionError(f"{node} is in no lexeme")

    def _pass_on(self, node: Node, after: int) -> None:
        """Tell every terminal and rule below the node what follows it, when `after` follows the node."""
        match node:
            case Lexeme() | Token():
                self._add(self._after, self._bit[node], after)
            case Reference(name):
                self._add(self._after_rule, name, after)
            case Sequence(items):
                for item in reversed(items):
                    self._pass_on(item, after)
                    first, empty = self._start(item)
                    after = first | (after if empty else 0)
            case Choice(options):
                for option in options:
                    self._pass_on(option, after)
            case Repeat(item, _, most):
                self._pass_on(item, after if most == 1 else after | self._start(item)[0])
            case _:
                raise AssertionError(f"{node} is in no lexeme")

    def _add(self, known: dict[Any, int], key: int | str, more: int) -> None:
        now = known.setdefault(key, 0) | more
        if now != known[key]:
            known[key] = now
            self._changed = True


def bits(number: int) -> Iterator[int]:
    """The positions of the bits that are set, ascending."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def union(numbers: Iterator[int] | Items[int]) -> int:
    """Every bit that is set in one of them."""
    together = 0
    for number in numbers:
        together |= number
    return together
