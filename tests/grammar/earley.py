"""A plain Earley recognizer (1970) over bytes: the oracle for masks. It shares nothing with what it checks.

A grammar maps names to alternatives, each a list of symbols: a name (str), or the set of texts of one character
(frozenset of bytes). Every rule must match some text, else prefixes that lead nowhere would count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

Symbol = str | frozenset[bytes]
Rules = Mapping[str, Sequence[Sequence[Symbol]]]
Item = tuple[str, int, int, int]  # rule, alternative, dot, origin


class Earley:
    def __init__(self, rules: Rules, start: str = "root") -> None:
        self.rules, self.start = rules, start
        self.columns = lru_cache(100_000)(self._columns)

    def viable(self, prefix: bytes) -> bool:
        """Whether some text of the language starts with these bytes."""
        columns, partial = self.columns(prefix)
        if not partial:
            return bool(columns[-1])
        return any(char.startswith(partial) for symbol in self._expected(columns[-1]) for char in symbol)

    def complete(self, text: bytes) -> bool:
        """Whether the language has this text."""
        columns, partial = self.columns(text)
        return not partial and any(
            name == self.start and origin == 0 and dot == len(self.rules[name][alternative])
            for name, alternative, dot, origin in columns[-1]
        )

    def _expected(self, column: frozenset[Item]) -> list[frozenset[bytes]]:
        after = [self.rules[name][alt][dot] for name, alt, dot, _ in column if dot < len(self.rules[name][alt])]
        return [symbol for symbol in after if not isinstance(symbol, str)]

    def _columns(self, data: bytes) -> tuple[tuple[frozenset[Item], ...], bytes]:
        """The column behind every character, and the bytes of one that isn't whole."""
        if not data:
            return (self._closed([(self.start, i, 0, 0) for i in range(len(self.rules[self.start]))], ()),), b""
        before, partial = self.columns(data[:-1])
        char = partial + data[-1:]
        moved = [
            (name, alt, dot + 1, origin)
            for name, alt, dot, origin in before[-1]
            if dot < len(self.rules[name][alt])
            and not isinstance(symbol := self.rules[name][alt][dot], str)
            and char in symbol
        ]
        if not moved and any(c.startswith(char) and c != char for s in self._expected(before[-1]) for c in s):
            return before, char
        return (*before, self._closed(moved, before)), b""

    def _closed(self, items: list[Item], before: tuple[frozenset[Item], ...]) -> frozenset[Item]:
        here = len(before)
        found = set(items)
        size = -1
        while len(found) != size:  # a rule that may be empty completes where it starts: go round until nothing is new
            size = len(found)
            for name, alt, dot, origin in list(found):
                body = self.rules[name][alt]
                if dot == len(body):
                    parents = found if origin == here else before[origin]
                    found |= {
                        (p, a, d + 1, o)
                        for p, a, d, o in parents
                        if d < len(self.rules[p][a]) and self.rules[p][a][d] == name
                    }
                elif isinstance(symbol := body[dot], str):
                    found |= {(symbol, i, 0, here) for i in range(len(self.rules[symbol]))}
        return frozenset(found)
