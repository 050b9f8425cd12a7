"""Ops and kernels from other distributions.

A distribution names a `Plugin` under the entry point group `minfer.plugins`. Nothing is looked for until `enable` is
asked to: what a process runs is what it was told to. Enabling adds to the registry of ops, for the rest of the
process's life; there is no way back, because graphs may refer to an op.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType, ModuleType
from typing import Any

from minfer_ir.opspec import FusedOp, Op, OpError

ENTRY_POINTS = "minfer.plugins"


class PluginError(ValueError):
    """A plug-in that isn't installed, or declares what can't be added; the message names it."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """What a distribution adds.

    `kernels` names a module by backend ("cpu", "gpu"): its `EMITTERS` say, by op, how a node becomes kernel calls, as
    those of the backend's own `emit` do. `tolerances` are classes of `minfer_ir.testing.tolerances` by op; an op
    without one is held to bitwise equality with its reference.
    """

    ops: tuple[Op, ...]
    kernels: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerances: Mapping[str, Any] = field(default_factory=dict[str, Any])


_enabled: dict[str, Plugin] = {}


def enabled() -> tuple[str, ...]:
    """The names of the enabled plug-ins, in order."""
    return tuple(_enabled)


def enable(names: Iterable[str]) -> None:
    """Enable installed plug-ins by entry point name; those that are enabled already stay so.

    Raises PluginError for a name that no installed distribution has, and as `add`.
    """
    wanted = [name for name in dict.fromkeys(names) if name not in _enabled]
    if not wanted:
        return
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    if missing := [name for name in wanted if name not in points]:
        there = ", ".join(points) or "none"
        raise PluginError(f"no installed distribution has a plug-in called {', '.join(missing)}; there are: {there}")
    for name in wanted:
        add(name, points[name].load())


def add(name: str, plugin: object) -> None:
    """Enable `plugin` as `name`, all of it or nothing.

    Raises PluginError for something that isn't a Plugin, an op whose name or switch is taken, and a fused op whose
    `decompose` can't be traced.
    """
    from minfer_ir.builder import add_method
    from minfer_ir.ops import add_ops

    if not isinstance(plugin, Plugin):
        raise PluginError(f"plug-in {name} is {plugin!r}, not a minfer_ir.plugins.Plugin")
    if name in _enabled:
        raise PluginError(f"a plug-in called {name} is enabled already")
    try:
        add_ops(plugin.ops)
        _check_compositions(plugin)
    except (OpError, AttributeError) as error:
        raise PluginError(f"plug-in {name}: {error}") from None
    for op in plugin.ops:
        add_method(op)
    _enabled[name] = plugin


def _check_compositions(plugin: Plugin) -> None:
    """Trace every fused op; takes all ops of the plug-in back where one fails."""
    from minfer_ir.ops import drop_ops
    from minfer_ir.passes.pattern import patterns_of

    try:
        for op in plugin.ops:
            if isinstance(op, FusedOp):
                patterns_of(op.name)
    except BaseException:
        drop_ops(plugin.ops)
        raise


def emitters(backend: str) -> Mapping[str, Any]:
    """What the enabled plug-ins' kernels for `backend` are emitted by, by op. Imports their modules."""
    return declared(backend, "EMITTERS")


def declared(backend: str, what: str) -> Mapping[str, Any]:
    """By op, what the enabled plug-ins' modules for `backend` call `what`; those without such a table have none."""
    return _joined(tuple(_modules(backend)), what)


@cache
def _joined(modules: tuple[ModuleType, ...], what: str) -> Mapping[str, Any]:
    """Made once for the plug-ins that are enabled: it is asked for every node that isn't of an op of ours."""
    return MappingProxyType({op: found for module in modules for op, found in getattr(module, what, {}).items()})


def launch_sites(backend: str) -> tuple[str, ...]:
    """The sites of the launches that the enabled plug-ins' kernels for `backend` make, from their modules' `SITES`."""
    return tuple(site for module in _modules(backend) for site in getattr(module, "SITES", ()))


def _modules(backend: str) -> list[ModuleType]:
    return [importlib.import_module(p.kernels[backend]) for p in _enabled.values() if backend in p.kernels]


def tolerance(op: str) -> Any:
    """The tolerance class that a plug-in gives its op, or None."""
    return next((plugin.tolerances[op] for plugin in _enabled.values() if op in plugin.tolerances), None)
