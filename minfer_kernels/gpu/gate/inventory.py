"""Every configuration that the kernels' modules declare."""

from __future__ import annotations

import pkgutil
from collections import Counter
from importlib import import_module

from minfer_kernels.gpu import kernels
from minfer_kernels.gpu.configuration import Configuration


def configurations() -> dict[str, Configuration]:
    """By name, in the order of modules; ValueError for a name that is given twice."""
    found = [one for module in modules() for one in getattr(import_module(module), "CONFIGURATIONS", ())]
    if twice := sorted(name for name, n in Counter(one.name for one in found).items() if n > 1):
        raise ValueError(f"configurations with the same name: {', '.join(twice)}")
    return {one.name: one for one in found}


def modules() -> list[str]:
    """The kernels' modules by their full names, packages within packages too."""
    return sorted(info.name for info in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."))
