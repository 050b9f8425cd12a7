"""The devices that kernels are compiled and tiles are chosen for, and which of them stands for a device at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Target:
    """`backend` ("cuda" or "hip") and `arch` as Triton names them; `shared_limit`: bytes that one program may have."""

    name: str
    backend: str
    arch: int | str
    warp_size: int
    shared_limit: int


# the limits: CUDA C++ programming guide, "Technical specifications per compute capability"; LDS of CDNA 3
SM_90 = Target("sm_90", "cuda", 90, 32, 227 * 1024)
SM_80 = Target("sm_80", "cuda", 80, 32, 163 * 1024)
SM_120 = Target("sm_120", "cuda", 120, 32, 99 * 1024)
GFX942 = Target("gfx942", "hip", "gfx942", 64, 64 * 1024)

MMA_SYNC = (SM_80, SM_120)
"""Matrix instructions take all operands from registers; Hopper's read shared memory."""

TARGETS: Mapping[str, Target] = MappingProxyType({one.name: one for one in (SM_90, SM_80, SM_120, GFX942)})
MAIN = SM_90.name

INTERPRETER = Target("interpreter", "interpreter", "", 1, 1 << 40)
"""Triton's interpreter on the CPU, for which nothing is compiled."""

ROOMY = ((8, 0), (8, 7), (10, 0), (10, 1), (10, 3), (11, 0))
"""Compute capabilities, other than 9.0, whose programs may have 163 KiB of shared memory or more; the rest has 99."""


def target_of(capability: tuple[int, int], hip: bool = False) -> Target:
    """What stands for a device in choices of tiles: of its kind, and with no more shared memory than it has.

    `hip`: an AMD device, whose `capability` (as torch gives it: 9.4 of gfx942) isn't one of NVIDIA's.
    """
    if hip:
        return GFX942
    if capability[0] == 9:
        return SM_90
    return SM_80 if capability in ROOMY else SM_120
