"""The devices that kernels are compiled for."""

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
TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        target.name: target
        for target in (
            Target("sm_90", "cuda", 90, 32, 227 * 1024),
            Target("sm_80", "cuda", 80, 32, 163 * 1024),
            Target("sm_120", "cuda", 120, 32, 99 * 1024),
            Target("gfx942", "hip", "gfx942", 64, 64 * 1024),
        )
    }
)
MAIN = "sm_90"
