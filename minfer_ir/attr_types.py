"""Types of attrs and other plain records, read from their dataclass: JSON, schema and builder stub follow from it."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from numbers import Real
from reprlib import repr as short
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from minfer_ir.dtypes import DType
from minfer_ir.formats.base import Format
from minfer_ir.types import element_type

REQUIRED: Any = dataclasses.MISSING


class AttrError(ValueError):
    """A value that its declared type doesn't allow; the message starts with the field's path."""


@dataclass(frozen=True, slots=True)
class AttrField:
    """One field: its name, resolved annotation, and default (`REQUIRED` when it has none)."""

    name: str
    hint: Any
    default: Any = REQUIRED


@cache
def attr_fields(attrs: type[Any]) -> tuple[AttrField, ...]:
    """The fields of a frozen dataclass, in order."""
    hints = get_type_hints(attrs)
    return tuple(AttrField(f.name, hints[f.name], f.default) for f in dataclasses.fields(attrs))


def revive(attrs: type[Any], values: Mapping[str, Any], path: str = "") -> Any:
    """An `attrs` instance from plain or already typed values; raises AttrError for an unknown, missing or bad one."""
    known = {field.name: field for field in attr_fields(attrs)}
    prefix = f"{path}." if path else ""
    if unknown := sorted(set(values) - set(known)):
        raise AttrError(f"{prefix}{unknown[0]}: no such field; there are: {', '.join(known) or 'none'}")
    if missing := [f.name for f in known.values() if f.default is REQUIRED and f.name not in values]:
        raise AttrError(f"{prefix}{missing[0]}: missing; it is {describe(known[missing[0]].hint)}")
    return attrs(**{name: convert(known[name].hint, value, f"{prefix}{name}") for name, value in values.items()})


def convert(hint: Any, value: Any, path: str) -> Any:
    """`value` as the type that `hint` declares; raises AttrError when it isn't one."""
    if type(value) is hint:
        return value
    try:
        return _convert(hint, value, path)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, AttrError) or is_record(hint):
            raise
        raise AttrError(f"{path}: expected {describe(hint)}, got {short(value)}") from None


def _convert(hint: Any, value: Any, path: str) -> Any:
    if is_union(hint):
        return _first_arm(hint, value, path)
    if get_origin(hint) is tuple and isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        return tuple(convert(get_args(hint)[0], item, f"{path}[{i}]") for i, item in enumerate(items))
    if is_record(hint):
        return value if isinstance(value, hint) else _nested(hint, value, path)
    return _convert_scalar(hint, value)


def _convert_scalar(hint: Any, value: Any) -> Any:
    if hint in (int, float) and not isinstance(value, bool):
        return operator.index(value) if hint is int else float(_real(value))
    if hint in (DType, Format):
        value = element_type(value) if isinstance(value, str) else value
    allowed = value in get_args(hint) if get_origin(hint) is Literal else isinstance(value, hint)
    if not allowed or (hint is not bool and isinstance(value, bool)):
        raise TypeError
    return value


def _real(value: Any) -> Any:
    if not isinstance(value, Real):
        raise TypeError
    return value


def is_record(hint: Any) -> bool:
    """True for a dataclass that JSON writes as an object."""
    return hint is not DType and dataclasses.is_dataclass(hint)


def is_union(hint: Any) -> bool:
    """True for `X | Y`."""
    return get_origin(hint) in (Union, UnionType)


def _first_arm(hint: Any, value: Any, path: str) -> Any:
    for arm in get_args(hint):
        try:
            return convert(arm, value, path)
        except AttrError:
            continue
    raise TypeError


def _nested(hint: Any, value: Any, path: str) -> Any:
    if not isinstance(value, Mapping):
        raise AttrError(f"{path}: expected {describe(hint)}, got {short(value)}")
    return revive(hint, cast("Mapping[str, Any]", value), path)


def describe(hint: Any) -> str:
    """The type in words, for messages."""
    if hint in (DType, Format):
        return "the name of a scalar type" if hint is DType else "the name of a storage format"
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if is_union(hint):
        return " or ".join(describe(arm) for arm in get_args(hint))
    if get_origin(hint) is tuple:
        return f"a list of {describe(get_args(hint)[0])}"
    return {int: "an integer", float: "a number", str: "a string", bool: "true or false", NoneType: "null"}.get(
        hint, f"an object ({getattr(hint, '__name__', hint)})"
    )
