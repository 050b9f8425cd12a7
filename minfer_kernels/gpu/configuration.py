"""How a kernel is compiled: what a launch would use, as data, so that it can be compiled where no GPU is.

Every module of `kernels` lists its own in `CONFIGURATIONS`; where tiles depend on the device, the function
`configurations_for` takes a target and yields them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Promises:
    """What the compiled code must show.

    `dp4a`: the integer dot product instruction. `wide_loads`: 128-bit loads of weights or cells. `tensor_cores`: matrix
    instructions. `integer_ops`: at most as many integer instructions per weight in the loop over weights, of which one
    turn of one program reads `weights_per_turn`.
    """

    dp4a: bool = False
    wide_loads: bool = False
    tensor_cores: bool = False
    integer_ops: float | None = None
    weights_per_turn: int = 0


@dataclass(frozen=True, slots=True)
class Configuration:
    """One compilation of `kernel`.

    `signature` gives Triton's type of every run-time parameter ("*fp32", "*i32", "i32", ...), `constants` the others.
    `divisible` names the pointers, and integers, that are known to be multiples of 16. `sampled`: compiled in every run
    of the tests, the rest in long ones.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict)
    divisible: tuple[str, ...] = ()
    warps: int = 4
    stages: int = 2
    promises: Promises = Promises()
    sampled: bool = False


Inventory = Mapping[str, Mapping[str, Configuration]]
"""Configurations by target, then by name; every target has the same names."""
