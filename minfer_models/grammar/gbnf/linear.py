"""Rules that call only themselves, and only at one end, as repetitions: what is regular becomes one lexeme."""

from __future__ import annotations

from collections.abc import Mapping

from minfer_models.grammar.gbnf.syntax import Choice, Node, Reference, Repeat, Rule, Sequence, walk


def without_linear_recursion(rules: Mapping[str, Rule]) -> dict[str, Node]:
    """The bodies by name; `a ::= x a | y` has become `x* y` and `a ::= a x | y` has become `y x*` (Arden 1961)."""
    return {name: _repeated(name, rule.body) or rule.body for name, rule in rules.items()}


def _repeated(name: str, body: Node) -> Node | None:
    if not _mentions(body, name):
        return None
    options = list(_options(body))
    for at_end in (True, False):
        cut = [_cut(option, name, at_end) for option in options]
        rest = [option for option, own in zip(options, cut, strict=True) if own is None]
        own = [part for part in cut if part is not None]
        if own and rest and not any(_mentions(node, name) for node in [*rest, *own]):
            loop = Repeat(_choice(own), 0, None)
            return Sequence((loop, _choice(rest)) if at_end else (_choice(rest), loop))
    return None


def _options(body: Node) -> list[Node]:
    """The ways through a body; `(x a)?` is two of them."""
    if isinstance(body, Choice):
        return [way for option in body.options for way in _options(option)]
    if isinstance(body, Repeat) and (body.least, body.most) == (0, 1):
        return [*_options(body.item), Sequence(())]
    return [body]


def _cut(option: Node, name: str, at_end: bool) -> Node | None:
    """What stands before (or behind) the rule's own name, or None where it isn't at that end."""
    if not isinstance(option, Sequence) or len(option.items) < 2:
        return None
    own, others = (option.items[-1], option.items[:-1]) if at_end else (option.items[0], option.items[1:])
    if own != Reference(name):
        return None
    return others[0] if len(others) == 1 else Sequence(others)


def _choice(nodes: list[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else Choice(tuple(nodes))


def _mentions(node: Node, name: str) -> bool:
    return Reference(name) in walk(node)
