"""Text to rules: the notation of llama.cpp's grammars/README.md."""

from __future__ import annotations

import re
from bisect import bisect_right

from minfer_models.grammar.errors import GrammarError
from minfer_models.grammar.gbnf.charset import EVERY, LAST, SURROGATES, Ranges, char_set, others
from minfer_models.grammar.gbnf.syntax import (
    Chars,
    Choice,
    Literal,
    Node,
    Place,
    Reference,
    Repeat,
    Rule,
    Sequence,
    Token,
)

MOST_CHARACTERS = 1 << 20
MOST_NESTED = 100
MOST_REPEATS = 100_000

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = re.compile(r"[0-9]+")
_BLANKS = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_TOKEN_ID = re.compile(r"<\[([0-9]+)\]>")
_TOKEN_TEXT = re.compile(r"<[^<>\r\n]+>")
_SHORT = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_ONCE_OR_MORE: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def read(text: str) -> dict[str, Rule]:
    """The rules of a grammar by name, in order.

    Raises GrammarError with line and column for what isn't GBNF, a rule defined twice, and more than 1,048,576
    characters, 100 nested groups or 100,000 repetitions.
    """
    if not isinstance(text, str):
        raise GrammarError(f"the grammar is a {type(text).__name__}, not text")
    if len(text) > MOST_CHARACTERS:
        raise GrammarError(f"the grammar has {len(text)} characters; at most {MOST_CHARACTERS} are read")
    return _Reader(text).rules()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._at = 0
        self._nested = 0
        self._references: dict[str, Place] = {}

    def rules(self) -> dict[str, Rule]:
        found: dict[str, Rule] = {}
        self._skip(lines=True)
        while self._at < len(self._text):
            start = self._at
            rule = self._rule()
            if rule.name in found:
                raise self._error(f"rule {rule.name} is defined again; the first is at {found[rule.name].place}", start)
            found[rule.name] = rule
            self._skip(lines=True)
        return found

    def _rule(self) -> Rule:
        place, self._references = self._place(self._at), {}
        name = self._match(_NAME)
        if name is None:
            raise self._error(f"expected the name of a rule, not {self._seen()}")
        self._skip(lines=False)
        if not self._take("::="):
            raise self._error(f"expected ::= behind the rule's name {name}, not {self._seen()}")
        self._skip(lines=True)
        body = self._choice()
        if self._at < len(self._text) and self._text[self._at] not in "\r\n":
            raise self._error(f"expected the end of rule {name}'s line, not {self._seen()}")
        return Rule(name, body, place, self._references)

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._take("|"):
            self._skip(lines=True)
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        items: list[Node] = []
        repeats = 0
        while True:
            start, repeat = self._at, self._repetition(bool(items))
            repeats = repeats + 1 if repeat is not None else 0
            if repeats > MOST_NESTED:
                raise self._error(f"more than {MOST_NESTED} repetitions of one item", start)
            if repeat is not None:
                items[-1] = Repeat(items[-1], *repeat)
            elif (item := self._item()) is not None:
                items.append(item)
            else:
                break
            self._skip(lines=self._nested > 0)
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _item(self) -> Node | None:
        start = self._text[self._at : self._at + 1]
        read = {'"': self._literal, "[": self._class, "(": self._group, "<": self._token, "!": self._token}.get(start)
        if read is not None:
            return read()
        if start == ".":
            self._at += 1
            return Chars(EVERY)
        place = self._place(self._at)
        name = self._match(_NAME)
        if name is None:
            return None
        self._references.setdefault(name, place)
        return Reference(name)

    def _group(self) -> Node:
        start = self._at
        self._at += 1
        self._nested += 1
        if self._nested > MOST_NESTED:
            raise self._error(f"more than {MOST_NESTED} groups are nested", start)
        self._skip(lines=True)
        inner = self._choice()
        if not self._take(")"):
            raise self._error(f"expected ) for the ( at {self._place(start)}, not {self._seen()}")
        self._nested -= 1
        return inner

    def _literal(self) -> Node:
        start = self._at
        self._at += 1
        text: list[str] = []
        while not self._take('"'):
            text.append(self._character(start, 'a text in "'))
        return Literal("".join(text)) if text else Sequence(())

    def _class(self) -> Node:
        start = self._at
        self._at += 1
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            at = self._at
            low = high = ord(self._character(start, "a class in [", surrogates=True))
            if self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = ord(self._character(start, "a class in [", surrogates=True))
            if high < low:
                raise self._error(f"the range {self._text[at : self._at]} ends before it starts", at)
            ranges.append((low, high))
        return Chars(self._not_empty(others(char_set(ranges)) if negated else char_set(ranges), start))

    def _not_empty(self, ranges: Ranges, start: int) -> Ranges:
        if not ranges:
            raise self._error(f"{self._text[start : self._at]} matches no character", start)
        return ranges

    def _character(self, start: int, inside: str, surrogates: bool = False) -> str:
        at = self._at
        if at >= len(self._text):
            raise self._error(f"{inside} never ends", start)
        char = self._text[at]
        self._at += 1
        char = self._escaped(at) if char == "\\" else char
        if not surrogates and SURROGATES[0] <= ord(char) <= SURROGATES[1]:
            raise self._error(f"U+{ord(char):04X} is a surrogate, which no UTF-8 text has", at)
        return char

    def _escaped(self, at: int) -> str:
        kind = self._text[self._at : self._at + 1]
        self._at += 1
        if kind in _SHORT and kind:
            return _SHORT[kind]
        if kind not in _HEX_DIGITS or not kind:
            known = '\\n \\r \\t \\\\ \\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH'
            raise self._error(f"\\{kind} is no escape; there are {known}", at)
        n = _HEX_DIGITS[kind]
        digits = self._text[self._at : self._at + n]
        if not re.fullmatch(rf"[0-9A-Fa-f]{{{n}}}", digits):
            raise self._error(f"\\{kind} takes {n} hexadecimal digits, not {digits!r}", at)
        self._at += n
        if int(digits, 16) > LAST:
            raise self._error(f"\\{kind}{digits} is no code point: the last is U+10FFFF", at)
        return chr(int(digits, 16))

    def _token(self) -> Node:
        start = self._at
        negated = self._take("!")
        number = _TOKEN_ID.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            return Token(int(number[1]), negated, self._place(start))
        text = self._match(_TOKEN_TEXT)
        if text is None:
            raise self._error("expected a token, <text> or <[id]>", start)
        return Token(text, negated, self._place(start))

    def _repetition(self, has_item: bool) -> tuple[int, int | None] | None:
        start, sign = self._at, self._text[self._at : self._at + 1]
        if sign not in ("*", "+", "?", "{"):
            return None
        if not has_item:
            raise self._error(f"nothing stands before {sign} that it could repeat")
        self._at += 1
        if sign != "{":
            return _ONCE_OR_MORE[sign]
        least, most = self._bounds(start)
        if most is not None and most < least:
            raise self._error(f"{self._text[start : self._at]} asks for at least {least} and at most {most}", start)
        return least, most

    def _bounds(self, start: int) -> tuple[int, int | None]:
        least = most = self._count()
        if self._take(","):
            self._skip(lines=self._nested > 0)
            digit = self._text[self._at : self._at + 1].isdecimal()
            most = self._count() if digit else None
        if not self._take("}"):
            raise self._error(f"expected }} for the {{ at {self._place(start)}, not {self._seen()}")
        return least, most

    def _count(self) -> int:
        self._skip(lines=self._nested > 0)
        at, digits = self._at, self._match(_NUMBER)
        if digits is None:
            raise self._error(f"expected a number, not {self._seen()}: it's {{m}}, {{m,}} or {{m,n}}")
        if len(digits) > 9 or int(digits) > MOST_REPEATS:
            raise self._error(f"{digits} repetitions are more than {MOST_REPEATS}", at)
        self._skip(lines=self._nested > 0)
        return int(digits)

    def _skip(self, lines: bool) -> None:
        match = (_BLANK_LINES if lines else _BLANKS).match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        return match[0]

    def _seen(self) -> str:
        if self._at >= len(self._text):
            return "the end of the grammar"
        return "the end of the line" if self._text[self._at] in "\r\n" else repr(self._text[self._at])

    def _place(self, at: int) -> Place:
        line = bisect_right(self._line_starts, at)
        return Place(line, at - self._line_starts[line - 1] + 1)

    def _error(self, message: str, at: int | None = None) -> GrammarError:
        return GrammarError(f"grammar, {self._place(self._at if at is None else at)}: {message}")
