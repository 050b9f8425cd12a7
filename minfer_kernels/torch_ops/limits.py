"""What each kind of torch device can't do, as data, and a look at whether that is so."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minfer_ir.ops.leaves import KV_TYPES
from minfer_kernels.tensors.buffers import TORCH_TYPES


class DeviceError(ValueError):
    """A torch device that has no such name, isn't there, or can't do what ops need."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`weights` is the type that matrices are decoded to, `kv_types` the cells that attention reads."""

    weights: torch.dtype = torch.float16
    kv_types: tuple[str, ...] = KV_TYPES


LIMITS = {"cpu": Limits(weights=torch.float32), "cuda": Limits(), "mps": Limits(), "xpu": Limits()}
"""By torch device type. float16 is half the memory, but on the CPU the slower product."""


def device_named(text: str) -> torch.device:
    """The device called `text` (cpu, cuda:1, mps, xpu); raises DeviceError with what there is."""
    there = present()
    try:
        device = torch.device(text)
    except RuntimeError:
        raise DeviceError(f"torch knows no device {text!r}; there are {', '.join(there)}") from None
    if (device.index or 0) >= there.get(device.type, 0):
        raise DeviceError(f"there is no torch device {text!r} here that ops run on; there are {', '.join(there)}")
    return device


def present() -> dict[str, int]:
    """How many devices of each kind this machine has, where it has any."""
    found = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
        "xpu": torch.xpu.device_count() if torch.xpu.is_available() else 0,
    }
    return {kind: count for kind, count in found.items() if count}


def check_windows(device: torch.device) -> None:
    """Read a window in the middle of a buffer as every scalar type; raises DeviceError where the device can't."""
    raw = torch.zeros(64, dtype=torch.uint8, device=device)[16:48]
    for name, dtype in TORCH_TYPES.items():
        try:
            raw.view(dtype).copy_(torch.ones(32 // dtype.itemsize, dtype=dtype))
        except (RuntimeError, TypeError) as error:
            raise DeviceError(f"{device} can't read a window of bytes as {name}, which plans need: {error}") from None
