"""What a person says, put together from lines.

A line that ends in a backslash goes on in the next one, as does a block that begins with three quotes until they come
again. Nothing else in a text is changed: backslash and n stay two characters.
"""

from __future__ import annotations

from dataclasses import dataclass

QUOTES = '"""'


@dataclass(frozen=True, slots=True)
class Said:
    """A whole text; a `literal` one came in quotes and is never a command."""

    text: str
    literal: bool = False


def goes_on(text: str) -> bool:
    """Whether more lines belong to it: an open block, or a backslash at the end (two of them are just two)."""
    if _opens_block(text):
        return not text.lstrip().partition("\n")[2].rstrip().endswith(QUOTES)
    return _goes_on_in_the_next(text)


def whole(text: str) -> Said:
    """A text that doesn't go on, without the quotes of its block."""
    stripped = text.strip()
    one_line = "\n" not in stripped and stripped.startswith(QUOTES) and stripped.count(QUOTES) == 2
    if stripped.endswith(QUOTES) and (_opens_block(text) or one_line):
        return Said(stripped[len(QUOTES) : -len(QUOTES)].removeprefix("\n").removesuffix("\n"), literal=True)
    return Said(text)


class Lines:
    """A text that comes line by line: looking at each costs what that line is long."""

    def __init__(self, first: str) -> None:
        self._lines, self.block = [first], _opens_block(first)

    @property
    def go_on(self) -> bool:
        """Whether more lines belong to them, as `goes_on` says of a text."""
        last = self._lines[-1]
        if self.block:
            return len(self._lines) == 1 or not last.rstrip().endswith(QUOTES)
        return _goes_on_in_the_next(last)

    def add(self, line: str) -> None:
        """The next one, of lines that go on: a backslash at the end has done its work."""
        if not self.block:
            self._lines[-1] = self._lines[-1][:-1]
        self._lines.append(line)

    @property
    def text(self) -> str:
        """All of them."""
        return "\n".join(self._lines)


def _goes_on_in_the_next(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _opens_block(text: str) -> bool:
    first = text.lstrip().partition("\n")[0]
    return first.startswith(QUOTES) and QUOTES not in first[len(QUOTES) :]
