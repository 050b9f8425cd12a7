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
        return "\n" not in text or not text.rstrip().endswith(QUOTES)
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def whole(text: str) -> Said:
    """A text that doesn't go on, without the quotes of its block."""
    stripped = text.strip()
    one_line = "\n" not in stripped and stripped.startswith(QUOTES) and stripped.count(QUOTES) == 2
    if stripped.endswith(QUOTES) and (_opens_block(text) or one_line):
        return Said(stripped[len(QUOTES) : -len(QUOTES)].removeprefix("\n").removesuffix("\n"), literal=True)
    return Said(text)


def joined(text: str, line: str) -> str:
    """A text that goes on, with its next line: the backslash at its end has done its work."""
    return f"{text if _opens_block(text) else text[:-1]}\n{line}"


def _opens_block(text: str) -> bool:
    first = text.lstrip().partition("\n")[0]
    return first.startswith(QUOTES) and QUOTES not in first[len(QUOTES) :]
