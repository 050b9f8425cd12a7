"""What a GBNF grammar says, as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from minfer_models.grammar.gbnf.charset import Ranges

ROOT = "root"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in the grammar's text; both count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of `ranges`."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Literal:
    """These characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; none is the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of them."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`least` to `most` times; None is without end."""

    item: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Reference:
    """What the rule called `name` matches."""

    name: str


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the vocabulary, by id or by its text; negated, any other one."""

    token: int | str
    negated: bool
    place: Place


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A text, never the empty one, that the regular expression `node` matches."""

    node: Node


Node: TypeAlias = Chars | Literal | Sequence | Choice | Repeat | Reference | Token | Lexeme


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, and where it and the first reference to each other rule stand."""

    name: str
    body: Node
    place: Place
    references: dict[str, Place]


def children(node: Node) -> tuple[Node, ...]:
    """The nodes that a node is made of."""
    match node:
        case Sequence(items):
            return items
        case Choice(options):
            return options
        case Repeat(item):
            return (item,)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, not through references."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(children(node))
