"""The one way a kernel is launched: named, counted, checked, and explained when it fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from triton.runtime.interpreter import InterpretedFunction

from minfer_ir.runtime.backend import BackendError
from minfer_ir.runtime.probe import Probe

SITE_PREFIX = "launch:"
"""Before a launch's site where a probe lists it."""
TOO_MANY = 1 << 20
"""Programs along y: a device takes at most 65535, and says so."""


class LaunchError(BackendError):
    """A launch failed; the message names site, node, kernel, shapes and what the device said."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """What runs instead of a launch that failed, and why that is as good; a launch without one is required."""

    reason: str
    launches: tuple[Launch, ...]


@dataclass
class Launch:
    """One kernel over a grid.

    `site` names the place in the code, as a test may make it fail; `node` is who asked for it. `args` are tensors and
    numbers by parameter name, `constants` the compile-time parameters, `warps` and `stages` Triton's.

    The first run compiles; the compiled kernel is held with its arguments in order, because looking it up again costs
    four times the launch.
    """

    site: str
    node: str
    kernel: Any
    grid: tuple[int, ...]
    args: Mapping[str, Any]
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    warps: int = 4
    stages: int = 2
    fallback: Fallback | None = None
    failed: str | None = None
    """What went wrong when the fallback took over."""
    _held: Callable[[], None] | None = None

    @cached_property
    def place(self) -> str:
        """The site as a probe lists it."""
        return SITE_PREFIX + self.site

    def run(self, probe: Probe) -> None:
        """Launch it on the current stream; raises LaunchError, unless a fallback is declared."""
        if self.failed is not None:
            return self._fall_back(probe)
        armed = probe.reach(self.place)
        try:
            if armed:
                self._first(self._impossible_grid())
            elif self._held is not None:
                self._held()
            else:
                self._held = self._first(self.grid)
        except Exception as error:  # whatever the compiler, the driver or the interpreter raises
            failure = f"launch {self.site} for {self.node} failed: {self}: {_said(error)}"
            if self.fallback is None:
                raise LaunchError(failure) from error
            self.failed = failure
            self._fall_back(probe)
        return None

    def _first(self, grid: tuple[int, ...]) -> Callable[[], None] | None:
        """Launch by way of the compiler; what launches it again, where kernels are compiled."""
        given = {**self.args, **self.constants}
        compiled = self.kernel[grid](**given, num_warps=self.warps, num_stages=self.stages)
        if compiled is None:
            return None
        launch = compiled[(*grid, 1, 1)[:3]]
        ordered = tuple(_in_order(self.kernel, given))
        return lambda: launch(*ordered)

    def _fall_back(self, probe: Probe) -> None:
        assert self.fallback is not None
        for launch in self.fallback.launches:
            launch.run(probe)

    def _impossible_grid(self) -> tuple[int, ...]:
        """A grid that the driver, or the interpreter, refuses by itself."""
        return (1, 1, 1, 1) if isinstance(self.kernel, InterpretedFunction) else (1, TOO_MANY, 1)

    def __str__(self) -> str:
        operands = ", ".join(f"{name}={_shown(value)}" for name, value in self.args.items())
        constants = "".join(f", {name}={value}" for name, value in self.constants.items())
        instead = "" if self.fallback is None else f" or {self.fallback.reason}"
        return f"{self.kernel.__name__}{list(self.grid)}({operands}{constants}){instead}"


def _in_order(kernel: Any, given: Mapping[str, Any]) -> list[Any]:
    """The arguments as a compiled kernel takes them: in the order of the parameters, with their defaults."""
    parameters = inspect.signature(kernel.fn).parameters
    return [given.get(name, parameter.default) for name, parameter in parameters.items()]


def _said(error: Exception) -> str:
    """What an error says, or what caused it where it says nothing."""
    return str(error) or repr(error.__cause__ or error)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return str(value)
