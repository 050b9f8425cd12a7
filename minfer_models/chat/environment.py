"""The sandbox chat templates run in: jinja2 as Hugging Face `transformers` sets it up, with text origins traced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, ClassVar, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter

from minfer_models.chat.budget import (
    CALL,
    STEP,
    Budget,
    Counted,
    check_binop,
    check_method,
    check_spec,
    check_text,
    check_width,
)
from minfer_models.chat.codegen import ChatCodeGenerator
from minfer_models.chat.errors import ChatTemplateError
from minfer_models.chat.filters import chat_filters
from minfer_models.chat.traced import TracedStr, by_template, concat, has_user_text, sealed

_ADDED_ARGUMENTS = frozenset({"caller", "_loop_vars", "_block_vars"})  # by jinja2, not by the template's author
_BYTES = frozenset({"encode", "to_bytes", "from_bytes"})  # bytes aren't text: their sizes would go uncounted
_COMPARING = ("in", "eq", "==", "equalto", "ne", "!=", "gt", ">", "ge", ">=", "lt", "<", "le", "<=", "lower", "upper")


class TemplateRefusalError(jinja2.TemplateError):
    """The template itself called `raise_exception`."""


class _GenerationTag(Extension):
    """`{% generation %}` marks what the assistant said, for training; when rendering it is its body."""

    tags: ClassVar[set[str]] = {"generation"}  # pyright: ignore[reportIncompatibleVariableOverride]

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


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

    def __repr__(self) -> str:
        return "<Namespace>"


class _CountingFormatter(SandboxedFormatter):
    """`str.format` that refuses before a field makes the text too long."""

    def __init__(self, env: ChatEnvironment) -> None:
        super().__init__(env)
        self._budget, self._made = env.budget, 0

    def format_field(self, value: Any, format_spec: str) -> str:
        check_spec(format_spec)
        self._budget.read(value)
        text = super().format_field(value, format_spec)
        self._made = check_text(self._made + len(text))
        return text

    def convert_field(self, value: Any, conversion: Any) -> Any:
        self._budget.read(value)
        return super().convert_field(value, conversion)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """Renders to TracedStr, each `rendering` within a budget. `clock` answers `strftime_now`."""

    code_generator_class = ChatCodeGenerator
    intercepted_binops = frozenset({"+", "-", "%", "*", "**"})
    template_size = 0
    outside_names: frozenset[str] = frozenset()

    def __init__(self, clock: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _GenerationTag],
            finalize=self._finalized,
            optimized=False,
        )
        self._budget: ContextVar[Budget] = ContextVar("budget")
        self.filters = chat_filters(self._budget.get)
        self.tests |= {name: self._reading(self.tests[name]) for name in _COMPARING}
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": lambda format: clock().strftime(_within_width(format)),
            "namespace": _PlainNamespace,
        }
        del self.globals["lipsum"]

    @contextmanager
    def rendering(self) -> Iterator[None]:
        """One rendering, with a budget of its own unless it is one of several that share an open one."""
        if self._budget.get(None) is not None:
            yield
            return
        token = self._budget.set(Budget())
        try:
            yield
        finally:
            self._budget.reset(token)

    @property
    def budget(self) -> Budget:
        """What the rendering under way may still cost."""
        return self._budget.get()

    def counted(self, items: Iterable[Any], cost: int) -> Counted:
        """What a loop goes over, each step counted."""
        return Counted(items, self._budget.get(), cost)

    def copied(self, value: Any) -> Any:
        """A value that is about to be sliced, counted."""
        return self._budget.get().result(value)

    def read(self, value: Any) -> Any:
        """A value that is about to be compared or hashed, counted."""
        return value if value is None else self._budget.get().read(value)

    def concat(self, parts: Iterable[str]) -> TracedStr:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The parts one after another, each character with its origin."""
        budget, listed = self._budget.get(), []
        total = 0
        for part in parts:
            total = check_text(total + len(part))
            listed.append(part)
        budget.spend(total >> 3)
        return concat(listed)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Subscription; hashing nested tuples counts."""
        return super().getitem(obj, self.read(argument) if isinstance(argument, tuple) else argument)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """A call in a template. Methods of the template's own strings follow the origins of their arguments."""
        budget, owner = __self._budget.get(), getattr(__obj, "__self__", None)
        name: str = getattr(__obj, "__name__", "")
        if isinstance(__obj, Macro | BlockReference | LoopContext):
            budget.spend(CALL + __self.template_size)
        else:
            budget.spend(CALL)
            for value in (*args, *kwargs.values()):
                budget.read(value)
        if isinstance(owner, str):
            budget.spend(len(owner) >> 6)
            args = check_method(owner, name, args, budget)
        elif isinstance(__obj, LoopContext):
            args = tuple(Counted(items, budget, STEP + __self.template_size) for items in args)
        given = [*args, *(value for name, value in kwargs.items() if name not in _ADDED_ARGUMENTS)]
        if type(owner) is str and has_user_text(given):
            __obj = getattr(by_template(owner), name)
        result = budget.result(super().call(__context, __obj, *args, **kwargs))
        return sealed(result, given, owner if isinstance(owner, str) else None)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` and `format_map` of a string, sandboxed and counted."""
        owner = getattr(value, "__self__", None)
        if super().wrap_str_format(value) is None or not isinstance(owner, str):
            return None

        def formatted(*args: Any, **kwargs: Any) -> str:
            if value.__name__ == "format_map":
                args, kwargs = (), dict(*args, **kwargs)
            return type(owner)(_CountingFormatter(self).vformat(owner, args, kwargs))

        return functools.update_wrapper(formatted, value)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Neither internals nor what makes bytes."""
        return attr not in _BYTES and super().is_safe_attribute(obj, attr, value)

    def _finalized(self, value: Any) -> Any:
        """The text a printed or joined value stands for: a list or dict of user text gives user text."""
        if isinstance(value, str):
            return value
        self._budget.get().read(value)
        return sealed(str(value), value)

    def _reading(self, test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def read(*args: Any) -> Any:
            return test(*map(self.read, args))

        return read

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Access to internals fails at once; jinja2 alone would fail only when the result is used further."""
        raise SecurityError(f"access to attribute {attribute!r} of a {type(obj).__name__} is unsafe")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Operators that can make something large, refused where they would."""
        budget = self._budget.get()
        check_binop(operator, left, right, budget)
        budget.spend(1)
        return sealed(budget.result(super().call_binop(context, operator, left, right)), left, right)


def _refuse_internal(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}: names with a leading underscore are internal")


def _within_width(text: str) -> str:
    check_width(text)
    return text


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRefusalError(str(message))


def variables(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as a template sees them: JSON data only, all text marked as from outside.

    Raises ChatTemplateError naming the place for anything else.
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
    raise ChatTemplateError(f"{place} is a {type(value).__name__}; a template takes JSON data only")
