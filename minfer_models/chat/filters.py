"""The filters of chat templates: jinja2's, with their results' origins kept and their cost counted."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jinja2
from jinja2.filters import FILTERS

from minfer_models.chat.budget import (
    CALL,
    Budget,
    check_items,
    check_percent,
    check_pieces,
    check_replaced,
    check_text,
    check_width,
    joinable,
)
from minfer_models.chat.traced import TracedStr, by_template, sealed

# Filters that only pass text on, or change it with methods TracedStr follows. Any other one may mix in text whose
# origin is lost (`indent` joins lines with its own newline), so all it returns counts as from outside.
_FOLLOWED = frozenset({"attr", "d", "default", "first", "last", "max", "min", "replace", "reverse", "string", "trim"})
# Filters that look at the items of a list but not into them.
_SHALLOW = frozenset(
    {"attr", "batch", "count", "d", "default", "first", "items", "last", "length", "list", "map", "random", "reject"}
    | {"rejectattr", "reverse", "select", "selectattr", "slice"}
)
_ITERATING = frozenset(
    {"batch", "groupby", "list", "map", "max", "min", "reject", "rejectattr", "select", "selectattr", "slice", "sort"}
    | {"sum", "unique"}
)
_WITH_WIDTHS = frozenset({"batch", "center", "indent", "round", "slice", "tojson", "urlize", "wordwrap"})


def chat_filters(budget: Callable[[], Budget]) -> dict[str, Callable[..., Any]]:
    """jinja2's filters by name, `budget` being what the rendering that calls them may cost."""
    filters = {name: _counted(name, function, budget) for name, function in FILTERS.items()}
    return filters | {"tojson": _counted("tojson", _tojson, budget), "join": _join(budget)}


def _counted(name: str, function: Callable[..., Any], budget: Callable[[], Budget]) -> Callable[..., Any]:
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        left = budget()
        left.spend(CALL)
        _check(name, args[skipped:], kwargs, left)
        result = function(*args, **kwargs)
        if isinstance(result, TracedStr) and name not in _FOLLOWED:
            result = result.plain()
        return sealed(left.result(result), args, kwargs)

    return filtered


def _check(name: str, given: tuple[Any, ...], kwargs: Mapping[str, Any], budget: Budget) -> None:
    """Refuse what would cost too much, before it is done."""
    if not given:
        return
    value, *options = *given, *kwargs.values()
    if name in _ITERATING and isinstance(value, str | list | tuple | Mapping | range):
        budget.spend(check_items(len(value)))
    if name not in _SHALLOW:
        budget.read(value)
    for option in options:
        budget.read(option)
    if name in _WITH_WIDTHS:
        _check_widths(name, value, options, budget)
    elif name == "replace":
        check_replaced(str(value), *(str(o) if isinstance(o, str) else o for o in options))
    elif name == "format":
        check_percent(str(value), dict(kwargs) if kwargs else tuple(given[1:]), budget)
    elif name == "wordcount":
        check_pieces(str(value), "split", ())
    elif name == "sum":
        for option in options:
            if not isinstance(option, int | float | str):
                raise TypeError(f"sum starts from a {type(option).__name__}, expected a number")


def _check_widths(name: str, value: Any, options: list[Any], budget: Budget) -> None:
    flat = [w for o in options for w in (o if isinstance(o, list | tuple) else (o,))]
    for width in flat:
        check_width(width)
    if name == "indent":
        lines = str(value).count("\n") + 1
        check_text(len(str(value)) + lines * max(map(_extent, flat), default=4))
    elif name in ("urlize", "wordwrap"):
        check_text(len(str(value)) * (1 + sum(len(w) for w in flat if isinstance(w, str))))
    elif name == "tojson":
        check_text(budget.deep(value) * (1 + sum(map(_extent, flat)) * _depth(value)))


def _extent(width: Any) -> int:
    return len(width) if isinstance(width, str) else int(width) if isinstance(width, int | float) else 0


def _depth(value: Any) -> int:
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return 1 + max(map(_depth, items), default=0)


def _join(budget: Callable[[], Budget]) -> Callable[..., Any]:
    @jinja2.pass_eval_context
    def join(eval_ctx: Any, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> TracedStr:
        left = budget()
        left.spend(CALL)
        return left.result(FILTERS["join"](eval_ctx, joinable(str(d), value, left), by_template(d), attribute))

    return join


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, as `transformers` renders tools."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
