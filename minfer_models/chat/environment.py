"""The sandbox chat templates run in: jinja2 as Hugging Face `transformers` sets it up, with text origins traced."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, ClassVar, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, optimizeconst
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from minfer_models.chat.traced import TracedStr, by_template, concat, has_user_text, sealed

# Filters that only pass text on, or change it with methods TracedStr follows. Any other one may mix in text whose
# origin is lost (`indent` joins lines with its own newline), so all it returns counts as from outside.
_FOLLOWED = frozenset({"attr", "d", "default", "first", "last", "max", "min", "replace", "reverse", "string", "trim"})
_ADDED_ARGUMENTS = frozenset({"caller", "_loop_vars", "_block_vars"})  # by jinja2, not by the template's author
_MAX_REPEAT = 1 << 24
_MAX_POWER_BITS = 4096


class TemplateRefusalError(jinja2.TemplateError):
    """The template itself called `raise_exception`."""


class _GenerationTag(Extension):
    """`{% generation %}` marks what the assistant said, for training; when rendering it is its body."""

    tags: ClassVar[set[str]] = {"generation"}  # pyright: ignore[reportIncompatibleVariableOverride]

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _TracingGenerator(CodeGenerator):
    """Joins the operands of `~` through the environment; jinja2's own helper would lose their origins."""

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.concat(map(environment.finalize, (")
        for operand in node.nodes:
            self.visit(operand, frame)
            self.write(", ")
        self.write(")))")


class _PlainNamespace(jinja2.utils.Namespace):
    """`namespace(...)` without names that could reach Python internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            _refuse_internal(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_internal(name)
        super().__setitem__(name, value)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Renders to TracedStr. `clock` answers `strftime_now`."""

    code_generator_class = _TracingGenerator
    intercepted_binops = frozenset({"%", "*", "**"})
    concat = staticmethod(concat)  # pyright: ignore[reportAssignmentType]

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _GenerationTag],
            finalize=_finalize,
        )
        self.filters = {name: _sealing(function, name in _FOLLOWED) for name, function in FILTERS.items()}
        self.filters |= {"tojson": _sealing(_tojson, followed=False), "join": _join}
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": lambda format: clock().strftime(format),
            "namespace": _PlainNamespace,
        }

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """A call in a template. Methods of the template's own strings follow the origins of their arguments."""
        owner = getattr(__obj, "__self__", None)
        given = [*args, *(value for name, value in kwargs.items() if name not in _ADDED_ARGUMENTS)]
        if type(owner) is str and has_user_text(given):
            __obj = getattr(by_template(owner), __obj.__name__)
        result = super().call(__context, __obj, *args, **kwargs)
        return sealed(result, given, owner if isinstance(owner, str) else None)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Access to internals fails at once; jinja2 alone would fail only when the result is used further."""
        raise SecurityError(f"access to attribute {attribute!r} of a {type(obj).__name__} is unsafe")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """`%`, `*` and `**`, refused where the result would be huge."""
        if operator in ("*", "**"):
            _refuse_huge(operator, left, right)
        return sealed(super().call_binop(context, operator, left, right), left, right)


def _refuse_internal(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}: names with a leading underscore are internal")


def _refuse_huge(operator: str, left: Any, right: Any) -> None:
    if operator == "**":
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > _MAX_POWER_BITS:
            raise SecurityError(f"a power of more than {_MAX_POWER_BITS} bits")
        return
    for items, count in ((left, right), (right, left)):
        if isinstance(items, str | list | tuple) and isinstance(count, int) and len(items) * count > _MAX_REPEAT:
            raise SecurityError(f"{count} repetitions of {len(items)} items are over {_MAX_REPEAT}")


def _finalize(value: Any) -> Any:
    """The text a printed or joined value stands for: a list or dict of user text gives user text."""
    return value if isinstance(value, str) else sealed(str(value), value)


def _sealing(function: Callable[..., Any], followed: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if isinstance(result, TracedStr) and not followed:
            result = result.plain()
        return sealed(result, args, kwargs)

    return filtered


@jinja2.pass_eval_context
def _join(
    eval_ctx: nodes.EvalContext, value: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> TracedStr:
    return FILTERS["join"](eval_ctx, value, by_template(d), attribute)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, as `transformers` renders tools."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRefusalError(str(message))


def variables(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as a template sees them: JSON data only, all text marked as from outside.

    Raises TypeError naming the place for anything else.
    """
    return {name: traced(value, name) for name, value in values.items()}


def traced(value: Any, place: str) -> Any:
    """A fresh copy of JSON data with every string, keys too, marked as from outside."""
    if isinstance(value, str):
        return value if isinstance(value, TracedStr) else TracedStr(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {traced(key, f"a key of {place}"): traced(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [traced(item, f"{place}[{i}]") for i, item in enumerate(value)]
    raise TypeError(f"{place} is a {type(value).__name__}; a template takes JSON data only")
