"""Text that knows which of its characters the template wrote.

A chat template mixes its own markers (`<|im_start|>`) with what users say, and both may hold the same characters.
Only the template's markers may become special tokens, or a user could forge another turn. Escaping the user's text
beforehand would change what templates do with it: Qwen3's looks for `</think>`, splits and strips. So messages go in
as `TracedStr`, and every character keeps its origin through slicing, stripping, splitting and joining.

A plain `str` counts as written by the template. Results of operations that are not followed character by character
(`upper`, formatting, JSON) count as the user's as soon as anything of the user's went in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

import jinja2
from jinja2.nodes import EvalContext
from jinja2.runtime import Context

_USER, _TEMPLATE = b"\0", b"\1"
_WITHOUT_TEXT = (str, bool, int, float, type(None), jinja2.Undefined, jinja2.Environment, EvalContext, Context)


class TracedStr(str):
    """A string with one origin mark per character: 1 where the template wrote it, 0 where it came from outside.

    Without marks, all of it came from outside.
    """

    __slots__ = ("_marks",)
    _marks: bytes

    def __new__(cls, text: str = "", marks: bytes | None = None) -> TracedStr:
        """marks: bytes of the text's length."""
        self = super().__new__(cls, text)
        self._marks = _USER * len(self) if marks is None else marks
        return self

    def plain(self) -> str:
        """The text alone."""
        return str.__getitem__(self, slice(None))

    def segments(self) -> list[tuple[str, bool]]:
        """The text in runs of one origin: (text, whether the template wrote it)."""
        runs: list[tuple[str, bool]] = []
        text, start = self.plain(), 0
        while start < len(text):
            mark = self._marks[start : start + 1]
            change = self._marks.find(_USER if mark == _TEMPLATE else _TEMPLATE, start)
            stop = len(text) if change < 0 else change
            runs.append((text[start:stop], mark == _TEMPLATE))
            start = stop
        return runs

    def has_user_text(self) -> bool:
        """Whether any character came from outside."""
        return _USER in self._marks

    def _part(self, start: int, stop: int) -> TracedStr:
        return TracedStr(str.__getitem__(self, slice(start, stop)), self._marks[start:stop])

    def _adjacent(self, pieces: Iterable[str], gap: int = 0) -> list[TracedStr]:
        """Pieces of this text that follow each other, `gap` characters apart."""
        parts: list[TracedStr] = []
        start = 0
        for piece in pieces:
            parts.append(self._part(start, start + len(piece)))
            start += len(piece) + gap
        return parts

    def _in_order(self, pieces: Iterable[str]) -> list[TracedStr]:
        """Pieces of this text with only separators between them that no piece contains."""
        parts: list[TracedStr] = []
        stop = 0
        for piece in pieces:
            start = str.find(self, piece, stop)
            stop = start + len(piece)
            parts.append(self._part(start, stop))
        return parts

    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> TracedStr:
        return concat((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> TracedStr:
        return concat((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> TracedStr:
        return TracedStr(str.__mul__(self, count), self._marks * count)

    def __rmul__(self, count: SupportsIndex) -> TracedStr:
        return self * count

    def __getitem__(self, key: SupportsIndex | slice) -> TracedStr:
        text = str.__getitem__(self, key)
        return TracedStr(text, self._marks[key] if isinstance(key, slice) else bytes([self._marks[key]]))

    def __iter__(self) -> Iterator[TracedStr]:
        return (self._part(i, i + 1) for i in range(len(self)))

    def strip(self, chars: str | None = None, /) -> TracedStr:
        """As `str.strip`."""
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> TracedStr:
        """As `str.lstrip`."""
        return self._part(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> TracedStr:
        """As `str.rstrip`."""
        return self._part(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> TracedStr:
        """As `str.removeprefix`."""
        return self._part(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> TracedStr:
        """As `str.removesuffix`."""
        return self._part(0, len(str.removesuffix(self, suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        """As `str.split`."""
        pieces = str.split(self, sep, maxsplit)
        return self._in_order(pieces) if sep is None else self._adjacent(pieces, len(sep))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        """As `str.rsplit`."""
        pieces = str.rsplit(self, sep, maxsplit)
        return self._in_order(pieces) if sep is None else self._adjacent(pieces, len(sep))

    def splitlines(self, keepends: bool = False) -> list[Any]:
        """As `str.splitlines`."""
        lines = self._adjacent(str.splitlines(self, True))
        return lines if keepends else [line._part(0, len(str.splitlines(line)[0])) for line in lines]

    def partition(self, sep: str, /) -> tuple[Any, Any, Any]:
        """As `str.partition`."""
        before, found, after = self._adjacent(str.partition(self, sep))
        return before, found, after

    def rpartition(self, sep: str, /) -> tuple[Any, Any, Any]:
        """As `str.rpartition`."""
        before, found, after = self._adjacent(str.rpartition(self, sep))
        return before, found, after

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> TracedStr:
        """As `str.replace`; what replaces keeps its own origin."""
        if not old:
            return TracedStr(str.replace(self, old, new, count))
        return by_template(new).join(self.split(old, count))

    def join(self, parts: Iterable[str], /) -> TracedStr:
        """As `str.join`; parts and separator keep their origins."""
        parts = list(parts)
        text = str.join(self.plain(), parts)
        return TracedStr(text, self._marks.join(map(_marks_of, parts)))


def _marks_of(text: str) -> bytes:
    return text._marks if isinstance(text, TracedStr) else _TEMPLATE * len(text)


def by_template(text: str) -> TracedStr:
    """`text` with its origins; all of a plain string counts as the template's."""
    return text if isinstance(text, TracedStr) else TracedStr(text, _TEMPLATE * len(text))


def concat(parts: Iterable[str]) -> TracedStr:
    """The parts one after another, each character with its origin."""
    parts = list(parts)
    return TracedStr("".join(parts), b"".join(map(_marks_of, parts)))


def has_user_text(value: object) -> bool:
    """Whether a value, or anything in its lists, tuples and dicts, may hold text from outside.

    Anything that is not JSON data or a part of jinja2 may: a namespace, a dict view or a generator can hold such text.
    """
    waiting, seen = [value], set[int]()
    while waiting:
        item = waiting.pop()
        if isinstance(item, TracedStr):
            if item.has_user_text():
                return True
        elif isinstance(item, Mapping | list | tuple):
            if id(item) not in seen:  # nested lists may hold the same one again and again
                seen.add(id(item))
                waiting += [*item.keys(), *item.values()] if isinstance(item, Mapping) else item
        elif not isinstance(item, _WITHOUT_TEXT):
            return True
    return False


def sealed(result: Any, *inputs: object) -> Any:
    """A result whose characters were not followed: text counts as from outside if any input held such text."""
    if isinstance(result, str) and not isinstance(result, TracedStr) and has_user_text(inputs):
        return TracedStr(result)
    return result
