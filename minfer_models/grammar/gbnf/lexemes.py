"""A grammar as rules over lexemes, each a regular expression, such that taking the longest match loses nothing.

The engine reads text in lexemes and always takes the longest one. That is fast, and wrong where a shorter one would
have been right: with `("a" | "aa") "a"` the text `aa` would be read as one `aa`, and the last `"a"` would be missed.
So every expression starts as one lexeme, as large as it can be, and those for which a longer match could swallow a
shorter one are taken apart, at worst into single characters, which can't.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from minfer_models.grammar.errors import GrammarError
from minfer_models.grammar.gbnf.linear import without_linear_recursion
from minfer_models.grammar.gbnf.lookahead import Lookahead, Terminal, bits, union
from minfer_models.grammar.gbnf.positions import Positions, TooLargeError, share, swallows
from minfer_models.grammar.gbnf.syntax import (
    ROOT,
    Chars,
    Choice,
    Lexeme,
    Literal,
    Node,
    Reference,
    Repeat,
    Rule,
    Sequence,
    Token,
    children,
    walk,
)

MOST_LEXEMES = 2000
_MOST_DEPTH = 100
_MOST_CHARACTERS = 200_000
_MOST_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Lexed:
    """Rules over lexemes by name, root first, and the regular rules, to which lexemes may refer."""

    rules: dict[str, Node]
    regular: dict[str, Node]
    nullable: frozenset[Node]


class Tokens(Protocol):
    """What the tokens stand for that a grammar names as such."""

    def first_bytes(self, token: Token) -> int:
        """The bytes that its text may start with, as bits, 0 for none."""
        ...

    def share(self, left: Token, right: Token) -> bool:
        """Whether one token of the vocabulary is both."""
        ...


def lexed(rules: Mapping[str, Rule], tokens: Tokens) -> Lexed:
    """The rules in lexemes.

    Raises GrammarError when that takes more than 2,000 lexemes, or a token can't be told from text.
    """
    bodies = without_linear_recursion(rules)
    cutter = _Cutter(bodies, _regular(bodies), tokens)
    for _ in range(_MOST_ROUNDS):
        found = cutter.rules()
        clashing = cutter.clashing(found)
        if not clashing:
            break
        cutter.apart |= clashing
    else:
        cutter.in_characters = True
        found = cutter.rules()
    nullable = frozenset(node for node, positions in cutter.known.items() if positions.nullable)
    return Lexed(found, {name: bodies[name] for name in cutter.regular}, nullable)


class _Cutter:
    """Cuts bodies into lexemes; `apart` are the regular nodes that must not be one."""

    def __init__(self, bodies: dict[str, Node], regular: Mapping[str, _Extent], tokens: Tokens) -> None:
        self.apart: set[Node] = set()
        self.in_characters = False
        self.regular = regular
        self.known: dict[Node, Positions] = {}
        self._bodies = bodies
        self._tokens = tokens

    def rules(self) -> dict[str, Node]:
        """Every rule that is needed as a rule, root first."""
        found: dict[str, Node] = {}
        waiting = [ROOT]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = self._cut(self._bodies[name])
                waiting += [node.name for node in walk(found[name]) if isinstance(node, Reference)]
        lexemes = len({node for body in found.values() for node in walk(body) if isinstance(node, Lexeme)})
        if lexemes > MOST_LEXEMES:
            raise GrammarError(f"the grammar takes {lexemes} lexemes; at most {MOST_LEXEMES} are allowed")
        return found

    def clashing(self, rules: Mapping[str, Node]) -> set[Node]:
        """Lexemes that may swallow what another one, or a shorter text of the same one, has to leave.

        Raises GrammarError where a token that stands for text, named as a token, can't be told from that text.
        """
        look = Lookahead(rules)
        first = [self._first_bytes(terminal) for terminal in look.terminals]
        together = look.together(lambda i, j: self._share(look.terminals[i], look.terminals[j]))
        found: set[Node] = set()
        for i, shorter in enumerate(look.terminals):
            follows = union(first[j] for j in bits(look.follow[i]))
            for j in bits(together[i]) if follows or isinstance(shorter, Token) else ():
                longer = look.terminals[j]
                if not first[i] & first[j]:
                    continue
                if isinstance(shorter, Lexeme) and isinstance(longer, Lexeme):
                    if longer.node not in found and _clash(self.known[longer.node], self.known[shorter.node], follows):
                        found.add(longer.node)
                elif isinstance(shorter, Lexeme) != isinstance(longer, Lexeme):
                    token = longer if isinstance(longer, Token) else shorter
                    assert isinstance(token, Token)
                    raise GrammarError(
                        f"grammar, {token.place}: the token could also be read as the text that may stand here"
                    )
        return found

    def _share(self, left: Terminal, right: Terminal) -> bool:
        if not isinstance(left, Lexeme) or not isinstance(right, Lexeme):
            return isinstance(left, Token) and isinstance(right, Token) and self._tokens.share(left, right)
        try:
            return share(self.known[left.node], self.known[right.node])
        except TooLargeError:
            return True

    def _first_bytes(self, terminal: Terminal) -> int:
        if isinstance(terminal, Token):
            return self._tokens.first_bytes(terminal)
        return self.known[terminal.node].first_bytes

    def _cut(self, node: Node) -> Node:
        if self._is_regular(node) and (lexeme := self._lexeme(node)) is not None:
            return lexeme
        match node:
            case Literal(text):
                return Sequence(tuple(self._cut(Literal(char)) for char in text))
            case Sequence(items):
                return Sequence(tuple(map(self._cut, self._runs(node, items, Sequence))))
            case Choice(options):
                regular = [option for option in options if self._is_regular(option)]
                others = [option for option in options if not self._is_regular(option)]
                return Choice(tuple(map(self._cut, [*self._runs(node, (*regular,), Choice), *others])))
            case Repeat(item, least, most):
                return Repeat(self._cut(item), least, most)
            case _:
                return node

    def _runs(self, node: Node, items: tuple[Node, ...], join: Callable[[tuple[Node, ...]], Node]) -> list[Node]:
        """The items, neighbours that are regular joined; a regular node is here to be taken apart, so not its own."""
        if self._is_regular(node) or node in self.apart:
            return list(items)
        found: list[Node] = []
        run: list[Node] = []
        for item in (*items, None):
            if item is not None and self._is_regular(item):
                run.append(item)
                continue
            joined = join(tuple(run))
            found += run if len(run) < 2 or joined in self.apart else [joined]
            run = []
            found += [] if item is None else [item]
        return found

    def _lexeme(self, node: Node) -> Node | None:
        """The node as one lexeme, None where it has to be taken apart."""
        atom = isinstance(node, Chars) or (isinstance(node, Literal) and len(node.text) == 1)
        if (node in self.apart or self.in_characters) and not atom:
            return None
        if node not in self.known:
            if (_extent(node, self.regular) or _Extent(0, 0)).characters > _MOST_CHARACTERS:
                self.apart.add(node)
                return None
            try:
                self.known[node] = Positions.of(node, self._bodies.__getitem__)
            except TooLargeError:
                self.apart.add(node)
                return None
        if not self.known[node].first:
            return Sequence(())
        return Repeat(Lexeme(node), 0, 1) if self.known[node].nullable else Lexeme(node)

    def _is_regular(self, node: Node) -> bool:
        if isinstance(node, Reference):
            return node.name in self.regular
        return not isinstance(node, Token) and all(map(self._is_regular, children(node)))


def _clash(longer: Positions, shorter: Positions, after: int) -> bool:
    try:
        return swallows(longer, shorter, after)
    except TooLargeError:
        return bool(longer.follow)


@dataclass(frozen=True, slots=True)
class _Extent:
    """How deep a regular expression nests, and how many characters it has, references followed."""

    depth: int
    characters: int


def _regular(bodies: Mapping[str, Node]) -> dict[str, _Extent]:
    """Rules that are regular expressions: without tokens and recursion, and neither too deep nor too large."""
    extents: dict[str, _Extent] = {}
    users: dict[str, set[str]] = {name: set() for name in bodies}
    lacking: dict[str, set[str]] = {}
    for name, body in bodies.items():
        lacking[name] = {node.name for node in walk(body) if isinstance(node, Reference)}
        for used in lacking[name]:
            users[used].add(name)
    waiting = [name for name, needs in lacking.items() if not needs]
    while waiting:
        name = waiting.pop()
        extent = _extent(bodies[name], extents)
        if extent is None or extent.depth > _MOST_DEPTH or extent.characters > _MOST_CHARACTERS:
            continue
        extents[name] = extent
        for user in users[name]:
            lacking[user].discard(name)
            if not lacking[user]:
                waiting.append(user)
    return extents


def _extent(node: Node, extents: Mapping[str, _Extent]) -> _Extent | None:
    """None for what isn't regular."""
    match node:
        case Reference(name):
            known = extents.get(name)
            return None if known is None else _Extent(known.depth + 1, known.characters)
        case Token() | Lexeme():
            return None
        case Literal(text):
            return _Extent(1, len(text))
        case Chars():
            return _Extent(1, 1)
        case _:
            below = [_extent(child, extents) for child in children(node)]
            known = [extent for extent in below if extent is not None]
            if len(known) < len(below):
                return None
            depth = 1 + max((extent.depth for extent in known), default=0)
            return _Extent(depth, sum(extent.characters for extent in known))
