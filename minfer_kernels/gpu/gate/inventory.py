"""Every configuration that the kernels' modules declare, by device."""

from __future__ import annotations

import pkgutil
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any

from minfer_kernels.gpu import kernels
from minfer_kernels.gpu.choice import TileTable
from minfer_kernels.gpu.configuration import Configuration, Inventory
from minfer_kernels.gpu.targets import TARGETS, Target


def inventory() -> Inventory:
    """The configurations of every device that kernels are compiled for."""
    return MappingProxyType({target.name: configurations(target) for target in TARGETS.values()})


def configurations(target: Target) -> dict[str, Configuration]:
    """By name, in the order of modules; ValueError for a name that is given twice."""
    found = [one for module in modules() for one in _declared(import_module(module), target)]
    if twice := sorted(name for name, n in Counter(one.name for one in found).items() if n > 1):
        raise ValueError(f"configurations with the same name: {', '.join(twice)}")
    return {one.name: one for one in found}


def tile_tables() -> list[TileTable[Any]]:
    """The choices of all kernels, in the order of modules."""
    return [table for module in modules() for table in getattr(import_module(module), "TABLES", ())]


def modules() -> list[str]:
    """The kernels' modules by their full names, packages within packages too."""
    return sorted(info.name for info in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."))


def _declared(module: ModuleType, target: Target) -> Iterable[Configuration]:
    """What a module lists for all devices, or for this one."""
    if hasattr(module, "configurations_for"):
        return module.configurations_for(target)
    return getattr(module, "CONFIGURATIONS", ())
