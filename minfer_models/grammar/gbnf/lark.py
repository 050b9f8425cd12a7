"""Rules over lexemes, written in the notation that the engine reads."""

from __future__ import annotations

from collections.abc import Callable

from minfer_models.grammar.gbnf.charset import Ranges
from minfer_models.grammar.gbnf.lexemes import Lexed
from minfer_models.grammar.gbnf.syntax import (
    ROOT,
    Chars,
    Choice,
    Lexeme,
    Literal,
    Node,
    Reference,
    Repeat,
    Sequence,
    Token,
)

_NOT_EMPTY = "/(?s:.+)/"


def lark(grammar: Lexed, token_set: Callable[[Token], str]) -> str:
    """The text of the grammar, whose start is called `start`; `token_set` writes the ids of a token as ranges."""
    return _Writer(grammar, token_set).text()


class _Writer:
    def __init__(self, grammar: Lexed, token_set: Callable[[Token], str]) -> None:
        self._grammar = grammar
        self._token_set = token_set
        self._rules = {name: "start" if name == ROOT else f"r{i}" for i, name in enumerate(grammar.rules)}
        self._regular = {name: f"N{i}" for i, name in enumerate(grammar.regular)}
        self._lexemes: dict[Node, str] = {}

    def text(self) -> str:
        rules = [f"{self._rules[name]}: {self._rule(body)}" for name, body in self._grammar.rules.items()]
        terminals = [f"{name}: {self._lexeme(node)}" for node, name in self._lexemes.items()]
        regular = [f"{self._regular[name]}: {self._regex(body)}" for name, body in self._grammar.regular.items()]
        return "\n".join([*rules, *terminals, *regular, ""])

    def _rule(self, node: Node) -> str:
        match node:
            case Lexeme(inner):
                return self._lexemes.setdefault(inner, f"L{len(self._lexemes)}")
            case Token():
                return f"<[{self._token_set(node)}]>"
            case Reference(name):
                return self._rules[name]
            case _:
                return _around(node, self._rule)

    def _lexeme(self, node: Node) -> str:
        text = self._regex(node)
        return f"({text}) & {_NOT_EMPTY}" if node in self._grammar.nullable else text

    def _regex(self, node: Node) -> str:
        match node:
            case Chars(ranges):
                return f"/{_class(ranges)}/"
            case Literal(text):
                return f"/{''.join(map(_code, map(ord, text)))}/"
            case Reference(name):
                return self._regular[name]
            case _:
                return _around(node, self._regex)


def _around(node: Node, write: Callable[[Node], str]) -> str:
    match node:
        case Sequence(items):
            return f"({' '.join(map(write, items))})" if items else '""'
        case Choice(options):
            return f"({' | '.join(map(write, options))})"
        case Repeat(item, least, most):
            return _repeat(write(item), least, most)
        case _:
            raise AssertionError(f"{node} can't stand here")


def _repeat(item: str, least: int, most: int | None) -> str:
    if most == 0:
        return '""'
    return f"({item}){{{least},{'' if most is None else most}}}"


def _class(ranges: Ranges) -> str:
    return "[" + "".join(_code(low) if low == high else f"{_code(low)}-{_code(high)}" for low, high in ranges) + "]"


def _code(code: int) -> str:
    return f"\\x{{{code:X}}}"
