"""Options that belong together, declared once and taken by several commands. Nothing heavy is imported here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """`read` makes of the options' values by name what a command's parameter `name` gets, checked.

    It runs before the command does. Raises BadParameter for what can't be.
    """

    name: str
    options: Sequence[inspect.Parameter]
    read: Callable[[Mapping[str, Any]], Any]


def option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """An option of a group, or of every command; the annotation is as a command's own would have it."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def takes(*groups: OptionGroup) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of groups, each where the parameter of the group's name stands; read in this order."""
    by_name = {group.name: group for group in groups}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            group = by_name.get(parameter.name)
            parameters += [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)] if group is None else group.options

        @wraps(command)
        def run(**given: Any) -> None:
            taken = {g.name: {o.name: given.pop(o.name) for o in g.options} for g in groups}
            command(**given, **{g.name: g.read(taken[g.name]) for g in groups})

        return with_parameters(run, parameters)

    return decorate


def with_parameters(command: Any, parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """A command that wraps another, for typer to see these parameters instead of the other's."""
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    del command.__wrapped__
    return command
