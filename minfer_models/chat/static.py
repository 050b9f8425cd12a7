"""What a template's source alone tells: constructs that can never render are refused before anything is rendered."""

from __future__ import annotations

from collections.abc import Iterator

import jinja2
from jinja2 import nodes

_OTHER_FILES = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


def check_constructs(parsed: nodes.Template, environment: jinja2.Environment, outside_names: frozenset[str]) -> None:
    """Raise TemplateAssertionError for another file, an unknown function, filter or test, or Python's internals.

    `outside_names` are those that the template takes from outside. One whose presence it asks for
    (`strftime_now is defined`, `'x' is filter`) may be missing.
    """
    unknown = outside_names - environment.globals.keys()
    missing_allowed = set(_asked_for(parsed))
    for node in parsed.find_all(nodes.Node):
        wrong = _wrong(node, environment, unknown, missing_allowed)
        if wrong:
            raise jinja2.TemplateAssertionError(wrong, node.lineno)


def _wrong(node: nodes.Node, environment: jinja2.Environment, unknown: frozenset[str], allowed: set[str]) -> str:
    if isinstance(node, _OTHER_FILES):
        return f"{{% {type(node).__name__.lower()} %}} needs another file, and a chat template stands alone"
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name in unknown - allowed:
        return f"{node.node.name}() is called, and nothing of that name is defined"
    if isinstance(node, nodes.Filter) and node.name not in environment.filters and node.name not in allowed:
        return f"no filter is named {node.name!r}"
    if isinstance(node, nodes.Test) and node.name not in environment.tests and node.name not in allowed:
        return f"no test is named {node.name!r}"
    internal = _attribute(node)
    if internal.startswith("__") and internal.endswith("__") and len(internal) > len("____"):
        return f"access to {internal!r} is unsafe"
    return ""


def _attribute(node: nodes.Node) -> str:
    if isinstance(node, nodes.Getattr):
        return node.attr
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
        return node.arg.value
    return ""


def arguments_of(parsed: nodes.Template, outside_names: frozenset[str]) -> frozenset[str]:
    """Those of `outside_names` that a caller may give.

    A name that some branch sets counts as from outside wherever another branch reads it; it's the template's own
    unless the template asks whether it was given.
    """
    stored = (node.name for node in parsed.find_all(nodes.Name) if node.ctx == "store")
    filled = (node.node for node in parsed.find_all(nodes.Filter) if node.name in ("d", "default"))
    defaults = {node.name for node in filled if isinstance(node, nodes.Name)}
    return outside_names - (set(stored) - {*_asked_for(parsed), *defaults})


def _asked_for(parsed: nodes.Template) -> Iterator[str]:
    """Names that the template asks about: it can do without them."""
    for test in parsed.find_all(nodes.Test):
        if test.name in ("defined", "undefined", "callable") and isinstance(test.node, nodes.Name):
            yield test.node.name
        elif test.name in ("filter", "test") and isinstance(test.node, nodes.Const):
            yield str(test.node.value)
