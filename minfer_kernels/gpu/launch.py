"""The one way a kernel is launched: named, checked, and explained when it fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from minfer_ir.runtime.backend import BackendError


class LaunchError(BackendError):
    """A launch failed; the message names site, node, kernel, shapes and what the device said."""


@dataclass(slots=True)
class Launch:
    """One kernel over a grid.

    `site` names the place in the code, as a test may make it fail; `node` is who asked for it. `args` are tensors and
    numbers by parameter name, `constants` the compile-time parameters, `warps` and `stages` Triton's.
    """

    site: str
    node: str
    kernel: Any
    grid: tuple[int, ...]
    args: Mapping[str, Any]
    constants: Mapping[str, Any] = field(default_factory=dict)
    warps: int = 4
    stages: int = 2

    def run(self) -> None:
        """Launch it on the current stream; raises LaunchError."""
        try:
            self.kernel[self.grid](**self.args, **self.constants, num_warps=self.warps, num_stages=self.stages)
        except Exception as error:  # whatever the compiler, the driver or the interpreter raises
            raise LaunchError(f"launch {self.site} for {self.node} failed: {self}: {error}") from error

    def __str__(self) -> str:
        operands = ", ".join(f"{name}={_shown(value)}" for name, value in self.args.items())
        constants = "".join(f", {name}={value}" for name, value in self.constants.items())
        return f"{self.kernel.__name__}{list(self.grid)}({operands}{constants})"


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return str(value)
