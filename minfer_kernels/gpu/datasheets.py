"""What data sheets promise of devices: NVIDIA's product pages, dense float16 without sparsity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Datasheet:
    """Memory bandwidth in bytes, and the float16 matrix rate in operations (two a multiply-add), per second."""

    bandwidth: float
    dense_f16: float


DATASHEETS: Mapping[str, Datasheet] = {
    "H200": Datasheet(4.8e12, 989e12),
    "H100 80GB HBM3": Datasheet(3.35e12, 989e12),
    "A100-SXM4-80GB": Datasheet(2.039e12, 312e12),
}
"""By a part of the name that the driver gives the device."""


def datasheet_of(device_name: str) -> Datasheet | None:
    """None for a device that isn't listed."""
    return next((sheet for known, sheet in DATASHEETS.items() if known in device_name), None)
