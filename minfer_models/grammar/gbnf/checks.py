"""What rules must be before they can bind a model: all there, and able to end."""

from __future__ import annotations

from collections.abc import Mapping

from minfer_models.grammar.errors import GrammarError
from minfer_models.grammar.gbnf.syntax import ROOT, Choice, Node, Reference, Repeat, Rule, Sequence


def checked(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """The rules that root needs, root first.

    Raises GrammarError, naming the rule and its place, when there is no root, when a rule that is referred to isn't
    there, and when one can never end because each way through it needs itself again.
    """
    if ROOT not in rules:
        names = ", ".join(list(rules)[:10]) or "no rule at all"
        raise GrammarError(f"grammar: there is no rule called {ROOT}, where it would start; it has {names}")
    needed = _needed(rules)
    ending = _ending(needed)
    for rule in needed.values():
        if rule.name not in ending:
            raise GrammarError(
                f"grammar, {rule.place}: rule {rule.name} never ends: every way through it leads back to it"
            )
    return needed


def _needed(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    found, waiting = {ROOT: rules[ROOT]}, [rules[ROOT]]
    while waiting:
        rule = waiting.pop()
        for name, place in rule.references.items():
            if name not in rules:
                raise GrammarError(f"grammar, {place}: there is no rule called {name}")
            if name not in found:
                found[name] = rules[name]
                waiting.append(rules[name])
    return found


def _ending(rules: Mapping[str, Rule]) -> set[str]:
    """Rules that match some text: the least fixed point."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    for rule in rules.values():
        for name in rule.references:
            users[name].append(rule.name)
    ending: set[str] = set()
    waiting = list(rules)
    while waiting:
        name = waiting.pop()
        if name not in ending and _ends(rules[name].body, ending):
            ending.add(name)
            waiting += users[name]
    return ending


def _ends(node: Node, ending: set[str]) -> bool:
    match node:
        case Reference(name):
            return name in ending
        case Sequence(items):
            return all(_ends(item, ending) for item in items)
        case Choice(options):
            return any(_ends(option, ending) for option in options)
        case Repeat(item, least):
            return least == 0 or _ends(item, ending)
        case _:
            return True
